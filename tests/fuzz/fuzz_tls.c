/* TLS before a greeting is over: bytes of a stranger, in pieces as the first byte says. Whatever
 * they are, OpenSSL holds little for them: a message that announces much is refused at its head. */
#include "fuzz.h"
#include "net/tls_stream.h"

#include <malloc.h>
#include <openssl/crypto.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HELD_MAX (3 * TLS_MESSAGE_MAX) /* for the message, a record, and what a session needs */

static struct tls *tls;
static size_t held; /* by OpenSSL, in all */

static void *count_in(void *p)
{
    held += malloc_usable_size(p);
    return p;
}

static void *counted_malloc(size_t size, const char *file, int line)
{
    (void)file, (void)line;
    return count_in(malloc(size));
}

static void counted_free(void *p, const char *file, int line)
{
    (void)file, (void)line;
    held -= malloc_usable_size(p);
    free(p);
}

static void *counted_realloc(void *p, size_t size, const char *file, int line)
{
    (void)file, (void)line;
    held -= malloc_usable_size(p);
    return count_in(realloc(p, size));
}

static void write_certificate(const char *path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_set_pubkey(cert, key);
    X509_sign(cert, key, EVP_sha256());
    FILE *file = fopen(path, "w");
    if (!file || !PEM_write_X509(file, cert) ||
        !PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL))
        abort();
    fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    if (!CRYPTO_set_mem_functions(counted_malloc, counted_realloc, counted_free))
        abort();
    char path[] = "/tmp/triage-fuzz-tls-XXXXXX";
    struct buf error = {0};
    int fd = mkstemp(path);
    if (fd < 0)
        abort();
    close(fd);
    write_certificate(path);
    tls = tls_new(&(struct tls_options){.cert = path, .key = path}, &error);
    unlink(path);
    if (!tls)
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool warm; /* what OpenSSL keeps for ever, it takes with the first greeting */
    char text[4096];
    if (size < 1)
        return 0;
    size_t piece = data[0] == 0 ? size : data[0], before = held;
    struct tls_stream *t = tls_stream_new(tls);
    ssize_t n = 0;
    for (size_t at = 1; at < size && n >= 0; at += piece) {
        tls_stream_feed(t, (const char *)data + at, size - at < piece ? size - at : piece);
        while ((n = tls_stream_read(t, text, sizeof(text))) > 0)
            continue;
        if (warm && !t->greeted && held > before + HELD_MAX)
            abort();
    }
    tls_stream_free(t);
    warm = true;
    return 0;
}
