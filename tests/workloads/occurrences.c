/* Causes known numbers of events, each kind below a function of its own, and writes them to the file argv[1], one line
 * `FUNCTION NUMBER` for each.
 *
 * touch_pages: page faults. call_getppid: system calls. raise_signals: signals. switch_away: context switches.
 * call_function: calls of `called`. write_bytes: the bytes of the calls of write(2) that have more than LARGE of them.
 * pass_probes: static probes `occurrences:pass`, which are at three places, each with its argument elsewhere;
 * sum_of_arguments: the sum of these. pass_watched: static probes `occurrences:watched`,
 * which the program passes while their semaphore is set.
 *
 * The program stays on one CPU: occurrences that are skipped on a CPU are in the next sample of that CPU. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "static_probe.h"

enum { PAGE = 4096, PAGES = 100000, CALLS = 100000, SIGNALS = 20000, SLEEPS = 2000, FUNCTION_CALLS = 20000 };
enum { WRITES = 20000, LARGE = 50, PROBES = 20000 };

volatile unsigned short watched_semaphore __attribute__((section(".probes"), used));

static struct rusage usage(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        abort();
    return usage;
}

__attribute__((noinline)) static long touch_pages(void) {
    char *pages = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || madvise(pages, (size_t)PAGES * PAGE, MADV_NOHUGEPAGE) != 0)
        abort();
    long before = usage().ru_minflt;
    for (long page = 0; page < PAGES; page++)
        *(volatile char *)(pages + page * PAGE) = 1;
    long faults = usage().ru_minflt - before;
    munmap(pages, (size_t)PAGES * PAGE);
    return faults;
}

__attribute__((noinline)) static long call_getppid(void) {
    for (long call = 0; call < CALLS; call++)
        syscall(SYS_getppid);
    return CALLS;
}

static void ignore(int signal) {
    (void)signal;
}

__attribute__((noinline)) static long raise_signals(void) {
    for (long number = 0; number < SIGNALS; number++)
        raise(SIGUSR1);
    return SIGNALS;
}

__attribute__((noinline)) static long switch_away(void) {
    struct rusage before = usage();
    struct timespec pause = {.tv_nsec = 1000};
    for (long sleep = 0; sleep < SLEEPS; sleep++)
        nanosleep(&pause, NULL);
    struct rusage after = usage();
    return after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw;
}

__attribute__((noinline)) void called(void) {
    __asm__ volatile("");
}

__attribute__((noinline)) static long call_function(void) {
    for (long call = 0; call < FUNCTION_CALLS; call++)
        called();
    return FUNCTION_CALLS;
}

__attribute__((noinline)) static long write_bytes(void) {
    static char bytes[2 * LARGE];
    int file = open("/dev/null", O_WRONLY);
    long sum = 0;
    for (size_t call = 0; call < WRITES; call++) {
        size_t size = call % sizeof(bytes);
        if (write(file, bytes, size) != (ssize_t)size)
            abort();
        sum += size > LARGE ? (long)size : 0;
    }
    close(file);
    return sum;
}

static long sum_of_arguments;

__attribute__((noinline)) static long pass_probes(void) {
    enum { CONSTANT = 7 };
    long passed = 0;
    for (long number = 0; number < PROBES; number++) {
        volatile long doubled = 2 * number;
        STATIC_PROBE("occurrences", "pass", "0", "r", number);
        passed++;
        sum_of_arguments += number;
        if (number % 4 == 0) {
            STATIC_PROBE("occurrences", "pass", "0", "m", doubled);
            STATIC_PROBE("occurrences", "pass", "0", "n", CONSTANT);
            passed += 2;
            sum_of_arguments += doubled + CONSTANT;
        }
    }
    return passed;
}

__attribute__((noinline)) static long pass_watched(void) {
    long passed = 0;
    for (long number = 0; number < PROBES; number++) {
        if (watched_semaphore > 0) {
            STATIC_PROBE("occurrences", "watched", "watched_semaphore", "r", number);
            passed++;
        }
    }
    return passed;
}

static void stay_on_this_cpu(void) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(sched_getcpu(), &cpus);
    if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
        abort();
}

int main(int argc, char **argv) {
    FILE *report = argc > 1 ? fopen(argv[1], "w") : NULL;
    if (report == NULL)
        return 2;
    stay_on_this_cpu();
    signal(SIGUSR1, ignore);
    fprintf(report, "touch_pages %ld\n", touch_pages());
    fprintf(report, "call_getppid %ld\n", call_getppid());
    fprintf(report, "raise_signals %ld\n", raise_signals());
    /* Before the sleeps: a later sample has the number of those that were skipped. */
    fprintf(report, "write_bytes %ld\n", write_bytes());
    fprintf(report, "switch_away %ld\n", switch_away());
    fprintf(report, "call_function %ld\n", call_function());
    fprintf(report, "pass_probes %ld\n", pass_probes());
    fprintf(report, "sum_of_arguments %ld\n", sum_of_arguments);
    fprintf(report, "pass_watched %ld\n", pass_watched());
    return fclose(report) == 0 ? 0 : 1;
}
