/* Faults of a disk, for one folder of one process: a library for LD_PRELOAD.
 *
 *   TOLLGATE_FAULT_DIR    the folder. Calls for files elsewhere, and for sockets, are left alone.
 *   TOLLGATE_FAULT_FILE   the rules, which a test rewrites while the process runs: a file of 4096
 *                         bytes that both have mapped (struct control).
 *
 * A rule is a line: CALL FAULT [name=TEXT] [after=N] [times=N]
 *
 *   CALL    open (also creating), write, read, sync, truncate, rename, unlink
 *   FAULT   an error (EIO, ENOSPC, …)
 *           short=P    of a write or a read, only P percent are done
 *           torn=N     a write does its first N bytes, and then the process is killed
 *           kill       the process is killed before the call
 *           delay=MS   the call takes so many milliseconds longer
 *           hold=P     of what is written, P percent of the pages are held back until the file is
 *                      synced; the others, also later ones, are written at once. If the process is
 *                      killed, what is held back is lost: a page cache when the power fails
 *   name    only for files with TEXT in their path below the folder
 *   after   begins after N bytes were written, or after N calls of another kind
 *   times   ends after N faults
 *
 * `seed N` sets what `hold` is chosen by. The first rule that is for a call applies. New rules begin
 * to count anew, and what was held back before is written.
 *
 * While there are no rules, a call costs one more read of memory. While there are, the kernel is
 * asked for the file of each descriptor: that is right for duplicates and reused ones, too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum call { OPEN, WRITE, READ, SYNC, TRUNCATE, RENAME, UNLINK, CALLS };
static const char *const call_names[CALLS] = {
    "open", "write", "read", "sync", "truncate", "rename", "unlink"};

enum kind { ERROR, SHORT, TORN, KILL, HOLD, DELAY };

static const struct { const char *name; int number; } errors[] = {
    {"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EROFS", EROFS},
    {"EINTR", EINTR}, {"EACCES", EACCES}, {"EMFILE", EMFILE}};

/* The file that the test writes. */
struct control {
    _Atomic uint64_t version; /* Changes after the text has. 0: there are no rules. */
    _Atomic uint64_t faults;  /* How many there were; written here. */
    char text[4096 - 16];
};

struct rule {
    enum call call;
    enum kind kind;
    long value; /* An error, a percentage, or bytes. */
    char name[64];
    long after, times; /* times < 0: without end. */
};

#define MAX_RULES 16
#define PAGE 4096UL
#define MAX_HELD (64L << 20)

static struct control *control;
static const char *folder;
static size_t folder_length;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Of the rules: under the lock. */
static struct rule rules[MAX_RULES];
static int rule_count;
static uint64_t known_version;
static uint64_t random_state = 1;

/* Pages that are held back, of each file in the order in which they were written. */
struct page { struct page *next; off_t at; size_t length; char bytes[]; };
struct file { struct file *next; dev_t device; ino_t inode; int fd; struct page *first, **end; };
static struct file *files;
static long held_bytes;

#define REAL(name) static __typeof__(name) *real_##name
REAL(open); REAL(openat); REAL(write); REAL(pwrite); REAL(writev); REAL(read); REAL(pread);
REAL(readv); REAL(fsync); REAL(fdatasync); REAL(ftruncate); REAL(rename); REAL(unlink);

__attribute__((constructor)) static void begin(void) {
#define FIND(name) real_##name = (__typeof__(real_##name))dlsym(RTLD_NEXT, #name)
    FIND(open), FIND(openat), FIND(write), FIND(pwrite), FIND(writev), FIND(read), FIND(pread);
    FIND(readv), FIND(fsync), FIND(fdatasync), FIND(ftruncate), FIND(rename), FIND(unlink);
    folder = getenv("TOLLGATE_FAULT_DIR");
    const char *path = getenv("TOLLGATE_FAULT_FILE");
    int fd = folder && path ? real_open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    folder_length = strlen(folder);
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) control = mapped;
}

/* Whether there are rules: all that is asked of most calls. */
static int is_quiet(void) {
    return !control || (atomic_load(&control->version) == 0 && known_version == 0);
}

/* Writes what was held back of a file. Down to `choose`, functions are called under the lock. */
static void release(struct file *file) {
    while (file->first) {
        struct page *page = file->first;
        for (size_t done = 0; done < page->length;) {
            ssize_t count =
                real_pwrite(file->fd, page->bytes + done, page->length - done, page->at + done);
            if (count <= 0) break;
            done += count;
        }
        held_bytes -= page->length;
        file->first = page->next;
        free(page);
    }
    file->end = &file->first;
}

static void release_all(void) {
    while (files) {
        struct file *file = files;
        release(file);
        files = file->next;
        close(file->fd);
        free(file);
    }
}

/* The file of a descriptor, if something of it is held back, or else if `adds`. */
static struct file *file_of(int fd, int adds) {
    struct stat stat;
    if (fstat(fd, &stat) != 0) return NULL;
    for (struct file *file = files; file; file = file->next)
        if (file->device == stat.st_dev && file->inode == stat.st_ino) return file;
    struct file *file = adds ? calloc(1, sizeof *file) : NULL;
    if (!file) return NULL;
    *file = (struct file){files, stat.st_dev, stat.st_ino, fcntl(fd, F_DUPFD_CLOEXEC, 500), NULL, NULL};
    file->end = &file->first;
    return files = file;
}

static void parse_rule(char *line) {
    char *rest = NULL;
    char *word = strtok_r(line, " ", &rest), *fault = strtok_r(NULL, " ", &rest);
    if (!word || !fault) return;
    if (strcmp(word, "seed") == 0) {
        random_state = strtoull(fault, NULL, 10) * 2654435761u + 1;
        return;
    }
    struct rule rule = {.kind = ERROR, .times = -1};
    while (rule.call < CALLS && strcmp(word, call_names[rule.call]) != 0) rule.call++;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(fault, errors[i].name) == 0) rule.value = errors[i].number;
    if (rule.call == CALLS || rule_count == MAX_RULES) return;
    if (strcmp(fault, "kill") == 0) rule.kind = KILL;
    else if (sscanf(fault, "short=%ld", &rule.value) == 1) rule.kind = SHORT;
    else if (sscanf(fault, "torn=%ld", &rule.value) == 1) rule.kind = TORN;
    else if (sscanf(fault, "hold=%ld", &rule.value) == 1) rule.kind = HOLD;
    else if (sscanf(fault, "delay=%ld", &rule.value) == 1) rule.kind = DELAY;
    else if (rule.value == 0) return;
    while ((word = strtok_r(NULL, " ", &rest))) {
        sscanf(word, "name=%63s", rule.name);
        sscanf(word, "after=%ld", &rule.after);
        sscanf(word, "times=%ld", &rule.times);
    }
    rules[rule_count++] = rule;
}

static void read_rules(void) {
    uint64_t version = atomic_load(&control->version);
    if (version == known_version) return;
    release_all();
    known_version = version;
    rule_count = 0;
    if (version == 0) return;
    char text[sizeof control->text + 1] = {0}, *rest = NULL;
    memcpy(text, control->text, sizeof control->text);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        parse_rule(line);
}

/* The part of a path below the folder; none: it is elsewhere. */
static const char *below(const char *path) {
    int is_below = strncmp(path, folder, folder_length) == 0 &&
                   (path[folder_length] == '/' || path[folder_length] == 0);
    return is_below ? path + folder_length : NULL;
}

/* The rule for a call, which is of so many bytes, if its fault is due. `before`: bytes that may still
 * be written before it. It takes the lock, and holds it still if there is such a rule. */
static struct rule *choose(enum call call, const char *name, size_t bytes, long *before) {
    pthread_mutex_lock(&lock);
    read_rules();
    for (int i = 0; name && i < rule_count; i++) {
        struct rule *rule = &rules[i];
        if (rule->call != call || rule->times == 0 || !strstr(name, rule->name)) continue;
        *before = rule->after;
        long step = call == WRITE ? (long)bytes : 1;
        if (rule->after >= step) {
            rule->after -= step;
            break;
        }
        rule->after = 0;
        if (rule->times > 0) rule->times--;
        atomic_fetch_add(&control->faults, 1);
        return rule;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* The path of a descriptor below the folder, in `buffer`; none: it is something else. */
static const char *path_of(int fd, char buffer[4096]) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, buffer, 4095);
    buffer[length > 0 ? length : 0] = 0;
    return below(buffer);
}

static void die(void) {
    for (;;) kill(getpid(), SIGKILL);
}

static void wait_for(long milliseconds) {
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

/* An error, if there is a rule for this call: what most calls do. */
static int fails(enum call call, const char *path) {
    long before;
    struct rule *rule = choose(call, path, 0, &before);
    if (!rule) return 0;
    int kind = rule->kind, error = rule->value;
    pthread_mutex_unlock(&lock);
    if (kind == KILL) die();
    if (kind == DELAY) wait_for(error);
    errno = error;
    return kind == ERROR;
}

/* Holds back some pages of a write, and writes the others. */
static ssize_t hold(int fd, const char *bytes, size_t count, off_t at, long percent) {
    struct file *file = file_of(fd, 1);
    for (size_t done = 0; file && done < count;) {
        off_t here = at + done;
        size_t left = count - done, length = PAGE - here % PAGE < left ? PAGE - here % PAGE : left;
        random_state ^= random_state << 13, random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        int holds = (long)(random_state % 100) < percent;
        /* What is written later must not be under what was written before. */
        for (struct page *page = file->first; page; page = page->next)
            holds |= page->at < here + (off_t)length && here < page->at + (off_t)page->length;
        struct page *page = holds ? malloc(sizeof *page + length) : NULL;
        if (page) {
            *page = (struct page){NULL, here, length};
            memcpy(page->bytes, bytes + done, length);
            *file->end = page, file->end = &page->next;
            held_bytes += length;
        } else if (real_pwrite(fd, bytes + done, length, here) != (ssize_t)length) {
            return -1;
        }
        done += length;
    }
    if (held_bytes > MAX_HELD) release_all();
    return file ? (ssize_t)count : -1;
}

/* A write, at `at` or, if that is negative, where the file is. */
static ssize_t put(int fd, const char *bytes, size_t count, off_t at) {
    char buffer[4096];
    const char *name = is_quiet() || count == 0 ? NULL : path_of(fd, buffer);
    long before = 0;
    struct rule *rule = name ? choose(WRITE, name, count, &before) : NULL;
    if (!rule) return at < 0 ? real_write(fd, bytes, count) : real_pwrite(fd, bytes, count, at);
    struct rule now = *rule;
    if (now.kind == HOLD) {
        int is_at_place = at >= 0;
        off_t place = is_at_place ? at : lseek(fd, 0, SEEK_CUR);
        ssize_t done = hold(fd, bytes, count, place, now.value);
        if (!is_at_place && done > 0) lseek(fd, place + done, SEEK_SET);
        pthread_mutex_unlock(&lock);
        return done;
    }
    pthread_mutex_unlock(&lock);
    if (now.kind == DELAY) {
        wait_for(now.value);
        return at < 0 ? real_write(fd, bytes, count) : real_pwrite(fd, bytes, count, at);
    }
    size_t part = now.kind == TORN ? (size_t)now.value : (size_t)before;
    if (now.kind == SHORT) part = count * now.value / 100 > 0 ? count * now.value / 100 : 1;
    if (part > count) part = count;
    ssize_t done = part == 0 ? 0 : -1;
    if (part > 0) done = at < 0 ? real_write(fd, bytes, part) : real_pwrite(fd, bytes, part, at);
    if (now.kind == TORN || now.kind == KILL) die();
    /* As a full disk does: what fits is written, and the next write fails. */
    if (done != 0) return done;
    errno = now.value;
    return -1;
}

static void release_file(int fd) {
    pthread_mutex_lock(&lock);
    struct file *file = files ? file_of(fd, 0) : NULL;
    if (file) release(file);
    pthread_mutex_unlock(&lock);
}

/* Bytes that a read may get; negative: it fails. */
static ssize_t readable(int fd, size_t count) {
    char buffer[4096];
    const char *name = is_quiet() ? NULL : path_of(fd, buffer);
    if (!name) return count;
    release_file(fd);
    long before;
    struct rule *rule = choose(READ, name, count, &before);
    if (!rule) return count;
    struct rule now = *rule;
    pthread_mutex_unlock(&lock);
    if (now.kind == KILL) die();
    if (now.kind == DELAY) wait_for(now.value);
    if (now.kind == SHORT) return count * now.value / 100 > 0 ? count * now.value / 100 : count;
    errno = now.value;
    return now.kind == ERROR ? -1 : (ssize_t)count;
}

/* Whether a sync, or a change of the length, fails. Before either, what was held back is written. */
static int settles(int fd, enum call call) {
    char buffer[4096];
    const char *name = is_quiet() ? NULL : path_of(fd, buffer);
    if (!name) return 1;
    if (fails(call, name)) return 0;
    release_file(fd);
    return 1;
}

static int is_refused(enum call call, const char *path) {
    return !is_quiet() && below(path) && fails(call, below(path));
}

ssize_t write(int fd, const void *bytes, size_t count) { return put(fd, bytes, count, -1); }
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return put(fd, bytes, count, at); }

/* Of several parts the first is enough: a write may be short. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
    char buffer[4096];
    if (is_quiet() || count == 0 || !path_of(fd, buffer)) return real_writev(fd, parts, count);
    return put(fd, parts->iov_base, parts->iov_len, -1);
}

ssize_t read(int fd, void *bytes, size_t count) {
    ssize_t most = readable(fd, count);
    return most < 0 ? -1 : real_read(fd, bytes, most);
}

ssize_t pread(int fd, void *bytes, size_t count, off_t at) {
    ssize_t most = readable(fd, count);
    return most < 0 ? -1 : real_pread(fd, bytes, most, at);
}

ssize_t readv(int fd, const struct iovec *parts, int count) {
    return readable(fd, 1) < 0 ? -1 : real_readv(fd, parts, count);
}

int fsync(int fd) { return settles(fd, SYNC) ? real_fsync(fd) : -1; }
int fdatasync(int fd) { return settles(fd, SYNC) ? real_fdatasync(fd) : -1; }
int ftruncate(int fd, off_t length) { return settles(fd, TRUNCATE) ? real_ftruncate(fd, length) : -1; }

int rename(const char *from, const char *to) {
    return is_refused(RENAME, from) ? -1 : real_rename(from, to);
}

int unlink(const char *path) { return is_refused(UNLINK, path) ? -1 : real_unlink(path); }

/* The mode, which is there only if a file may be created. */
#define MODE(flags)                                                                                \
    va_list more;                                                                                  \
    va_start(more, flags);                                                                         \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                      \
    va_end(more)

int open(const char *path, int flags, ...) {
    MODE(flags);
    return is_refused(OPEN, path) ? -1 : real_open(path, flags, mode);
}

int openat(int at, const char *path, int flags, ...) {
    MODE(flags);
    return is_refused(OPEN, path) ? -1 : real_openat(at, path, flags, mode);
}

/* Files of any length: the same here. */
#define SAME(name, as) extern __typeof__(as) name __attribute__((alias(#as)))
SAME(open64, open);
SAME(openat64, openat);
SAME(pread64, pread);
SAME(pwrite64, pwrite);
SAME(ftruncate64, ftruncate);
