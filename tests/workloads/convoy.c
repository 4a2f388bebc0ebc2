/* Eight threads that append under one lock, which each holds for two milliseconds: main > append_all > append. With the
 * argument `apart` after the seconds, each thread has a lock of its own; with `spin`, they spin on one lock, in
 * append_spinning. One more thread is idle in run_loop. */
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>

#include "lifetime.h"

#define THREADS 8

static pthread_mutex_t locks[THREADS];
static pthread_spinlock_t spin_lock;

__attribute__((noinline)) static int append(pthread_mutex_t *lock) {
    struct timespec pause = {.tv_sec = 0, .tv_nsec = 2000000};
    pthread_mutex_lock(lock);
    int outcome = nanosleep(&pause, NULL);
    pthread_mutex_unlock(lock);
    return outcome;
}

static void *append_all(void *lock) {
    while (append(lock) == 0)
        ;
    return NULL;
}

__attribute__((noinline)) static int append_spinning(void) {
    struct timespec pause = {.tv_sec = 0, .tv_nsec = 2000000};
    pthread_spin_lock(&spin_lock);
    int outcome = nanosleep(&pause, NULL);
    pthread_spin_unlock(&spin_lock);
    return outcome;
}

static void *append_all_spinning(void *unused) {
    while (append_spinning() == 0)
        ;
    return unused;
}

__attribute__((noinline)) static int run_loop(int events) {
    struct epoll_event event;
    int found = 0;
    while (found == 0)
        found = epoll_wait(events, &event, 1, -1);
    return found;
}

static void *loop(void *unused) {
    return run_loop(epoll_create1(0)) < 0 ? NULL : unused;
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[2] : "";
    int is_apart = strcmp(mode, "apart") == 0;
    void *(*thread_main)(void *) = strcmp(mode, "spin") == 0 ? append_all_spinning : append_all;
    pthread_t thread;
    pthread_spin_init(&spin_lock, PTHREAD_PROCESS_PRIVATE);
    for (int number = 0; number < THREADS; number++) {
        pthread_mutex_init(&locks[number], NULL);
        if (pthread_create(&thread, NULL, thread_main, &locks[is_apart ? number : 0]) != 0)
            return 1;
    }
    if (pthread_create(&thread, NULL, loop, NULL) != 0)
        return 1;
    ready(argc, argv);
    while (goes_on())
        usleep(100000);
    return 0;
}
