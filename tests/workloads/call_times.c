/* Calls the kernel known numbers of times, each kind of call below a function of its own, measures how long the calls take, and
 * writes both to the file argv[1], one line `FUNCTION CALLS NANOSECONDS` for each function.
 *
 * sleep_calls: clock_nanosleep(2). read_calls: read(2) from a pipe into which another process writes now and then. fork_calls:
 * fork(2), whose children return from the call as well. compat_calls: getpid(2) by its number in 32-bit code, 0 calls where the
 * kernel has none of these. denied_calls: getppid(2), each followed by one that a seccomp filter denies some time later. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLEEPS = 50, READS = 50, FORKS = 20, COMPAT_CALLS = 10000, DENIED_CALLS = 20 };
enum { ALLOWED, DENIED };
enum { PAUSE_NS = 10 * 1000 * 1000 };

struct measured {
    long calls;
    long long ns;
};

/* Without a system call: the clock is read in user space. */
static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void sleep_once(void) {
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

__attribute__((noinline)) static struct measured sleep_calls(void) {
    struct measured measured = {0};
    for (; measured.calls < SLEEPS; measured.calls++) {
        long long start = now_ns();
        sleep_once();
        measured.ns += now_ns() - start;
    }
    return measured;
}

static void write_now_and_then(int to) {
    for (long byte = 0; byte < READS; byte++) {
        sleep_once();
        if (write(to, "x", 1) != 1)
            abort();
    }
}

__attribute__((noinline)) static struct measured read_calls(void) {
    int ends[2];
    if (pipe(ends) != 0)
        abort();
    pid_t writer = fork();
    if (writer == 0) {
        write_now_and_then(ends[1]);
        _exit(0);
    }
    struct measured measured = {0};
    for (; measured.calls < READS; measured.calls++) {
        char byte;
        long long start = now_ns();
        if (read(ends[0], &byte, 1) != 1)
            abort();
        measured.ns += now_ns() - start;
    }
    waitpid(writer, NULL, 0);
    return measured;
}

__attribute__((noinline)) static struct measured fork_calls(void) {
    struct measured measured = {0};
    for (; measured.calls < FORKS; measured.calls++) {
        long long start = now_ns();
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        measured.ns += now_ns() - start;
        waitpid(child, NULL, 0);
    }
    return measured;
}

static sigjmp_buf no_compat_calls;

static void leave(int signal) {
    (void)signal;
    siglongjmp(no_compat_calls, 1);
}

__attribute__((noinline)) static struct measured compat_calls(void) {
    enum { GETPID_32 = 20 };
    struct measured measured = {0};
    signal(SIGSEGV, leave);
    if (sigsetjmp(no_compat_calls, 1) == 0) {
        long long start = now_ns();
        for (long call = 0; call < COMPAT_CALLS; call++) {
            long result = GETPID_32;
            __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
        }
        measured = (struct measured){COMPAT_CALLS, now_ns() - start};
    }
    signal(SIGSEGV, SIG_DFL);
    return measured;
}

/* Denies getppid(2) where its register of the first argument, which the call does not read, has DENIED. */
static void deny_getppid(void) {
    struct sock_filter instructions[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, DENIED, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(instructions) / sizeof(*instructions), instructions};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        abort();
}

__attribute__((noinline)) static struct measured denied_calls(void) {
    struct measured measured = {0};
    for (; measured.calls < DENIED_CALLS; measured.calls++) {
        long long start = now_ns();
        syscall(SYS_getppid, ALLOWED);
        long long returned = now_ns();
        measured.ns += returned - start;
        while (now_ns() - returned < PAUSE_NS / 10) {
        }
        if (syscall(SYS_getppid, DENIED) != -1)
            abort();
    }
    return measured;
}

static void report(FILE *to, const char *function, struct measured measured) {
    fprintf(to, "%s %ld %lld\n", function, measured.calls, measured.ns);
    fflush(to);
}

int main(int argc, char **argv) {
    FILE *to = argc > 1 ? fopen(argv[1], "w") : NULL;
    if (to == NULL)
        return 2;
    report(to, "sleep_calls", sleep_calls());
    report(to, "read_calls", read_calls());
    report(to, "fork_calls", fork_calls());
    report(to, "compat_calls", compat_calls());
    deny_getppid();
    report(to, "denied_calls", denied_calls());
    return fclose(to) == 0 ? 0 : 1;
}
