#include "openapi.h"

/* The assembler reads the file: no generated source, no copy to keep in step. */
__asm__(".section .rodata\n"
        ".global openapi_text\n"
        "openapi_text:\n"
        ".incbin \"" OPENAPI_FILE "\"\n"
        "openapi_end:\n"
        ".byte 0\n"
        ".balign 8\n"
        ".global openapi_len\n"
        "openapi_len:\n"
        ".quad openapi_end - openapi_text\n"
        ".previous\n");
