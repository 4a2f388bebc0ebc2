/* Threads that wait in known ways for argv[1] seconds, and measure for how long they did not run. Each has the name of what it
 * does. Writes the result to the file argv[2], one line `NAME NANOSECONDS` for each thread, then one for each function of `split`,
 * and for `disk` the time in which its reads neither ran nor waited for a CPU, `read_page()`, and the number of their voluntary
 * context switches, `read_page()#`.
 *
 * mutex: a lock that `owner` holds for 12 ms at a time. pipe: a byte that `feeder` writes every 10 ms. poll: a time limit of
 * 10 ms. sleep: 10 ms. micro: 50 us; the timer of a shorter sleep is often over before the thread waits. long: once, all the
 * time. split: 3 ms in wait_30 and 7 ms in wait_70 in turns. disk: a page of the file argv[3] that is not in memory, then
 * 200 us of computing: the clock of a thread that does nothing but switch has an error of microseconds for each switch. idle:
 * SCHED_IDLE on the CPU of `busy`.
 *
 * With a fourth argument, it prints "ready PID", starts the threads after as many seconds, so that a profiler can attach to the
 * process before, and goes on after they have ended until its standard input is closed. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <poll.h>

enum { PAGE = 4096, FILE_PAGES = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int bytes[2];
static int file;
static long end_ns;

static long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int goes_on(void) {
    return now(CLOCK_MONOTONIC) < end_ns;
}

static void sleep_ns(long ns) {
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&time, NULL);
}

static void hold_lock(void) {
    pthread_mutex_lock(&lock);
    sleep_ns(12000000);
    pthread_mutex_unlock(&lock);
    sleep_ns(4000000);
}

static void take_lock(void) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

static void write_byte(void) {
    sleep_ns(10000000);
    if (write(bytes[1], "x", 1) != 1)
        abort();
}

static void read_byte(void) {
    char byte;
    /* 0: `feeder` has ended. */
    if (read(bytes[0], &byte, 1) < 0)
        abort();
}

static void poll_nothing(void) {
    poll(NULL, 0, 10);
}

static void sleep_10_ms(void) {
    sleep_ns(10000000);
}

static void sleep_50_us(void) {
    sleep_ns(50000);
}

static void sleep_to_the_end(void) {
    sleep_ns(end_ns - now(CLOCK_MONOTONIC));
}

static long waited_30_ns, waited_70_ns;

__attribute__((noinline)) static void wait_30(void) {
    long begin = now(CLOCK_MONOTONIC);
    sleep_ns(3000000);
    waited_30_ns += now(CLOCK_MONOTONIC) - begin;
}

__attribute__((noinline)) static void wait_70(void) {
    long begin = now(CLOCK_MONOTONIC);
    sleep_ns(7000000);
    waited_70_ns += now(CLOCK_MONOTONIC) - begin;
}

static void split(void) {
    wait_30();
    wait_70();
}

static void compute_for(long ns) {
    for (long end = now(CLOCK_MONOTONIC) + ns; now(CLOCK_MONOTONIC) < end;)
        ;
}

static long voluntary_switches(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) != 0)
        abort();
    return usage.ru_nvcsw;
}

/* The time for which this thread waited for a CPU so far: the second number of /proc/thread-self/schedstat (proc(5)). */
static long run_queue_ns(void) {
    static int statistics = -1;
    char text[100] = "";
    if (statistics < 0)
        statistics = open("/proc/thread-self/schedstat", O_RDONLY);
    if (statistics < 0 || pread(statistics, text, sizeof(text) - 1, 0) <= 0)
        abort();
    return atol(strchr(text, ' '));
}

/* What this thread has done up to one moment. */
struct clocks {
    long now_ns, cpu_ns, queued_ns, switches;
};

/* Reads the clocks again until the thread does not wait for a CPU between the first and the last of them: on a busy machine, such
 * a wait would be in some of them alone. */
static struct clocks read_clocks(void) {
    struct clocks clocks;
    do {
        clocks.queued_ns = run_queue_ns();
        clocks.switches = voluntary_switches();
        clocks.now_ns = now(CLOCK_MONOTONIC);
        clocks.cpu_ns = now(CLOCK_THREAD_CPUTIME_ID);
    } while (run_queue_ns() != clocks.queued_ns);
    return clocks;
}

static long read_page_ns, read_page_switches;

static void read_page(void) {
    static char page[PAGE];
    static unsigned number;
    struct clocks begin = read_clocks();
    /* This waits as well, for work of the kernel on other CPUs. */
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    off_t offset = (off_t)(number++ * 7 % FILE_PAGES) * PAGE;
    if (pread(file, page, PAGE, offset) != PAGE)
        abort();
    struct clocks end = read_clocks();
    read_page_ns += end.now_ns - begin.now_ns - (end.cpu_ns - begin.cpu_ns) - (end.queued_ns - begin.queued_ns);
    read_page_switches += end.switches - begin.switches;
    compute_for(200000);
}

static void compute(void) {
    while (goes_on())
        ;
    /* So that `idle` does not wait for its CPU after its last measurement. */
    struct sched_param priority = {.sched_priority = 0};
    if (sched_setscheduler(0, SCHED_OTHER, &priority) != 0)
        abort();
}

struct thread {
    const char *name;
    void (*wait)(void);
    long waited_ns;
};

static void compute_on_cpu_0(int policy) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    struct sched_param priority = {.sched_priority = 0};
    if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0 || sched_setscheduler(0, policy, &priority) != 0)
        abort();
}

/* Until a profiler is attached to this process. */
static void wait_to_begin(const char *seconds) {
    printf("ready %d\n", getpid());
    fflush(stdout);
    sleep_ns((long)(atof(seconds) * 1e9));
}

static void wait_for_end_of_input(void) {
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
}

static void *run(void *argument) {
    struct thread *thread = argument;
    /* Before the name: `idle` may wait for its CPU from the moment at which it has its policy. */
    long begin = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
    prctl(PR_SET_NAME, thread->name);
    prctl(PR_SET_TIMERSLACK, 1);
    if (thread->wait == compute)
        compute_on_cpu_0(strcmp(thread->name, "idle") == 0 ? SCHED_IDLE : SCHED_OTHER);
    while (goes_on())
        thread->wait();
    thread->waited_ns = now(CLOCK_MONOTONIC) - begin - (now(CLOCK_THREAD_CPUTIME_ID) - cpu);
    /* `pipe` can wait for a further byte: it looks at the time before this thread does. */
    if (thread->wait == write_byte)
        close(bytes[1]);
    return NULL;
}

int main(int argc, char **argv) {
    static struct thread threads[] = {
        {"owner", hold_lock, 0},
        {"mutex", take_lock, 0},
        {"feeder", write_byte, 0},
        {"pipe", read_byte, 0},
        {"poll", poll_nothing, 0},
        {"sleep", sleep_10_ms, 0},
        {"micro", sleep_50_us, 0},
        {"long", sleep_to_the_end, 0},
        {"split", split, 0},
        {"disk", read_page, 0},
        {"idle", compute, 0},
        {"busy", compute, 0},
    };
    enum { THREADS = sizeof(threads) / sizeof(threads[0]) };
    if (argc < 4 || pipe(bytes) != 0)
        return 1;
    file = open(argv[3], O_RDONLY);
    FILE *report = fopen(argv[2], "w");
    if (file < 0 || report == NULL)
        return 1;
    if (argc > 4)
        wait_to_begin(argv[4]);
    end_ns = now(CLOCK_MONOTONIC) + (long)(atof(argv[1]) * 1e9);
    pthread_t ids[THREADS];
    for (unsigned number = 0; number < THREADS; number++)
        if (pthread_create(&ids[number], NULL, run, &threads[number]) != 0)
            return 1;
    for (unsigned number = 0; number < THREADS; number++)
        pthread_join(ids[number], NULL);
    for (unsigned number = 0; number < THREADS; number++)
        fprintf(report, "%s %ld\n", threads[number].name, threads[number].waited_ns);
    fprintf(report, "wait_30() %ld\nwait_70() %ld\n", waited_30_ns, waited_70_ns);
    fprintf(report, "read_page() %ld\nread_page()# %ld\n", read_page_ns, read_page_switches);
    int outcome = fclose(report);
    if (argc > 4)
        wait_for_end_of_input();
    return outcome;
}
