/* Threads that wait without end. Arguments: seconds, threads, mode. Without a mode, they wait until the process ends.
 *
 * storm: each thread sleeps for a millisecond and exits, and another one takes its place, thousands a second.
 * cancel: the threads are cancelled while they wait, when a line comes on standard input; then it prints "cancelled". */
#include <dirent.h>
#include <pthread.h>
#include <string.h>

#include "lifetime.h"

static void *park(void *unused) {
    for (;;)
        pause();
    return unused;
}

/* Whether a thread sleeps, from the third field of its stat (proc_pid_stat(5)). One that has not run yet can run. */
static int sleeps(const char *tid) {
    char path[64], line[256] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%s/stat", tid);
    FILE *stat = fopen(path, "r");
    if (stat == NULL)
        abort();
    const char *state = fgets(line, sizeof(line), stat) == NULL ? NULL : strrchr(line, ')');
    fclose(stat);
    return state != NULL && state[2] == 'S';
}

/* Waits until all threads but this one have parked. */
static void await_parked(int count) {
    for (int parked = 0; parked < count;) {
        DIR *threads = opendir("/proc/self/task");
        if (threads == NULL)
            abort();
        parked = 0;
        for (struct dirent *thread; (thread = readdir(threads)) != NULL;)
            parked += thread->d_name[0] != '.' && sleeps(thread->d_name);
        closedir(threads);
        usleep(1000);
    }
}

static void *nap(void *unused) {
    struct timespec millisecond = {.tv_sec = 0, .tv_nsec = 1000000};
    nanosleep(&millisecond, NULL);
    return unused;
}

static void join(pthread_t thread) {
    if (pthread_join(thread, NULL) != 0)
        abort();
}

/* Replaces the oldest thread of all that nap. */
static void storm(const pthread_attr_t *attributes, pthread_t *threads, int count) {
    for (int oldest = 0; goes_on(); oldest = (oldest + 1) % count) {
        join(threads[oldest]);
        if (pthread_create(&threads[oldest], attributes, nap, NULL) != 0)
            abort();
    }
}

static void cancel(const pthread_t *threads, int count) {
    char line[16];
    if (read(0, line, sizeof(line)) <= 0)
        return;
    for (int number = 0; number < count; number++)
        if (pthread_cancel(threads[number]) != 0)
            abort();
    for (int number = 0; number < count; number++)
        join(threads[number]);
    puts("cancelled");
    fflush(stdout);
}

int main(int argc, char **argv) {
    enum { STACK_BYTES = 64 << 10 };
    int count = argc > 2 ? atoi(argv[2]) : 1000;
    const char *mode = argc > 3 ? argv[3] : "";
    int is_storm = strcmp(mode, "storm") == 0;
    pthread_t *threads = calloc(count, sizeof(*threads));
    pthread_attr_t attributes;
    if (threads == NULL || pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstacksize(&attributes, STACK_BYTES) != 0)
        return 1;
    for (int number = 0; number < count; number++)
        if (pthread_create(&threads[number], &attributes, is_storm ? nap : park, NULL) != 0)
            return 1;
    if (!is_storm)
        await_parked(count);
    ready(argc, argv);
    if (is_storm)
        storm(&attributes, threads, count);
    if (strcmp(mode, "cancel") == 0)
        cancel(threads, count);
    while (goes_on())
        usleep(100000);
    return 0;
}
