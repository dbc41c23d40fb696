/* Counts the system calls of a process on files below one directory, from inside the process, and
 * kills the process at the N-th, or makes calls fail from there on.
 *
 * Preloaded (LD_PRELOAD). FAULT_UNDER is the directory. FAULT_CONTROL is a file that the test maps,
 * too: the test writes the fault into it at any time, and reads there how many calls there were and
 * which one was hit. All threads count together, as one process has only one life.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SYNC = 1, WRITE = 2, RENAME = 4, OPEN = 8, REMOVE = 16 };

struct control {
    _Atomic int64_t calls;  /* which are counted: a sum of the above */
    _Atomic int64_t at;     /* the one that is hit; 0: none */
    _Atomic int64_t error;  /* 0: the process is killed; otherwise the call fails with this */
    _Atomic int64_t last;   /* the last one that fails */
    _Atomic int64_t count;
    _Atomic int64_t hit;
    char what[4048];        /* the call that was hit, and its file */
};

static struct control *control;
static char under[PATH_MAX];
static size_t under_size;

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("FAULT_CONTROL"), *directory = getenv("FAULT_UNDER");
    if (!file || !directory)
        return;
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int descriptor = real(file, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return;
    under_size = strlen(directory);
    memcpy(under, directory, under_size + 1);
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped != MAP_FAILED)
        control = mapped;
}

/* Returns whether the call has to fail; errno says how. */
static int fault(const char *name, const char *path) {
    if (strncmp(path, under, under_size) || (path[under_size] && path[under_size] != '/'))
        return 0;
    int64_t number = atomic_fetch_add(&control->count, 1) + 1, at = control->at;
    if (!at || number < at || (control->error && number > control->last))
        return 0;
    if (number == at) {
        snprintf(control->what, sizeof control->what, "%s %s", name, path);
        control->hit = number;
    }
    if (!control->error) {
        kill(getpid(), SIGKILL);
        pause();
    }
    errno = (int)control->error;
    return 1;
}

static int wanted(int kind) { return control && (control->calls & kind); }

static int fault_fd(int kind, const char *name, int descriptor) {
    if (!wanted(kind))
        return 0;
    int kept = errno;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    errno = kept;
    if (size < 0)
        return 0;
    path[size] = 0;
    return fault(name, path);
}

static int fault_path(int kind, const char *name, const char *path) {
    return wanted(kind) && path && fault(name, path);
}

#define REAL(result, name, ...)                                                                    \
    static result (*real)(__VA_ARGS__);                                                            \
    if (!real)                                                                                     \
        real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name);

#define OF_FD(kind, result, name, parameters, arguments, ...)                                      \
    result name parameters {                                                                       \
        REAL(result, name, __VA_ARGS__)                                                            \
        return fault_fd(kind, #name, fd) ? -1 : real arguments;                                    \
    }

OF_FD(SYNC, int, fdatasync, (int fd), (fd), int)
OF_FD(SYNC, int, fsync, (int fd), (fd), int)
OF_FD(SYNC, int, sync_file_range, (int fd, off64_t a, off64_t b, unsigned c), (fd, a, b, c), int, off64_t, off64_t, unsigned)
OF_FD(WRITE, ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n), int, const void *, size_t)
OF_FD(WRITE, ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o), int, const void *, size_t, off_t)
OF_FD(WRITE, ssize_t, pwrite64, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o), int, const void *, size_t, off64_t)
OF_FD(WRITE, ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o), int, const struct iovec *, int, off_t)
OF_FD(WRITE, ssize_t, pwritev64, (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o), int, const struct iovec *, int, off64_t)
OF_FD(WRITE, ssize_t, pwritev2, (int fd, const struct iovec *v, int n, off_t o, int f), (fd, v, n, o, f), int, const struct iovec *, int, off_t, int)
OF_FD(WRITE, ssize_t, pwritev64v2, (int fd, const struct iovec *v, int n, off64_t o, int f), (fd, v, n, o, f), int, const struct iovec *, int, off64_t, int)

int rename(const char *old, const char *new) {
    REAL(int, rename, const char *, const char *)
    return fault_path(RENAME, "rename", new) ? -1 : real(old, new);
}

int unlink(const char *path) {
    REAL(int, unlink, const char *)
    return fault_path(REMOVE, "unlink", path) ? -1 : real(path);
}

#define OPENER(name)                                                                               \
    int name(const char *path, int flags, ...) {                                                   \
        REAL(int, name, const char *, int, ...)                                                    \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(more, mode_t) : 0;                \
        va_end(more);                                                                              \
        return fault_path(OPEN, "open", path) ? -1 : real(path, flags, mode);                      \
    }
OPENER(open)
OPENER(open64)
