/* Whether a server could open a data directory, without changing anything in it and without a lock:
 * a server may have it open, or be about to. What the files hold is for `triaged check`. */
#include "engine/local/local.h"
#include "engine/local/secret.h"
#include "engine/local/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static bool may(const char *path, int how)
{
    return faccessat(AT_FDCWD, path, how, AT_EACCESS) == 0;
}

static void look_above(const char *dir, struct engine_preview *p)
{
    char copy[4096];
    snprintf(copy, sizeof(copy), "%s", dir);
    const char *above = dirname(copy);
    if (!may(above, F_OK))
        buf_printf(&p->problems, "data: %s is not there; create the folder that %s is to be in\n",
                   above, dir);
    else if (!may(above, W_OK | X_OK))
        buf_printf(&p->problems,
                   "data: this user may not create %s in %s; create it, or choose another\n", dir,
                   above);
    else
        buf_printf(&p->notes, "%s is not there, and would be created\n", dir);
}

/* The kernel lists the locks that are held. To try for one would keep a server from starting. */
static bool is_locked(const struct stat *file)
{
    char line[256], wanted[64];
    FILE *locks = fopen("/proc/locks", "re");
    bool locked = false;
    snprintf(wanted, sizeof(wanted), " %02x:%02x:%ju ", major(file->st_dev), minor(file->st_dev),
             (uintmax_t)file->st_ino);
    while (locks && !locked && fgets(line, sizeof(line), locks))
        locked = strstr(line, "FLOCK") && strstr(line, wanted);
    if (locks)
        fclose(locks);
    return locked;
}

static void look_at_lock(const char *dir, struct engine_preview *p)
{
    char path[4096];
    struct stat file;
    snprintf(path, sizeof(path), "%s/LOCK", dir);
    if (stat(path, &file) == 0 && is_locked(&file))
        buf_printf(&p->notes, "%s is in use by a running triaged, which is not disturbed\n", dir);
}

/* What is in a folder without FORMAT is somebody else's: a wrong path, most likely. */
static void look_for_strangers(const char *dir, struct engine_preview *p)
{
    static const char *const known[] = {".", "..", "lost+found", "LOCK", NULL};
    DIR *folder = opendir(dir);
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], e->d_name) != 0)
            i++;
        if (known[i])
            continue;
        buf_printf(&p->notes,
                   "%s is not empty and no data directory; a server would begin one beside %s\n",
                   dir, e->d_name);
        break;
    }
    if (folder)
        closedir(folder);
}

static void look_inside(const char *dir, struct engine_preview *p)
{
    uint8_t secret[SECRET_BYTES];
    struct buf error = {0};
    long format = 0;
    if (store_format(dir, &format, &error) || format < STORE_FORMAT ||
        secret_open(dir, false, secret, &error) == STATUS_OK)
        look_at_lock(dir, p);
    if (error.len > 0)
        buf_printf(&p->problems, "data: %s\n", buf_cstr(&error));
    else if (format == 0)
        look_for_strangers(dir, p);
    buf_fini(&error);
}

void local_preview(const struct engine_options *options, struct engine_preview *p)
{
    const char *dir = engine_option_text(options, "data");
    const char *backup_dir = engine_option_text(options, "backup_dir");
    struct stat st;
    if (stat(dir, &st) != 0 && errno == ENOENT)
        look_above(dir, p);
    else if (stat(dir, &st) != 0)
        buf_printf(&p->problems, "data: cannot look at %s: %s\n", dir, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        buf_printf(&p->problems, "data: %s is no folder; choose another name\n", dir);
    else if (!may(dir, R_OK | W_OK | X_OK))
        buf_printf(&p->problems, "data: this user may not read and write %s; chown it\n", dir);
    else
        look_inside(dir, p);
    if (*backup_dir && !may(backup_dir, W_OK | X_OK))
        buf_printf(&p->notes, "backup_dir: %s: %s; until then no backup is made\n", backup_dir,
                   strerror(errno));
}
