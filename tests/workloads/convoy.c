/* Eight threads that append under one lock, which each holds for two milliseconds: main > append_all > append. With the
 * argument `apart` after the seconds, each thread has a lock of its own. One more thread is idle in run_loop. */
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>

#include "lifetime.h"

#define THREADS 8

static pthread_mutex_t locks[THREADS];

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
    int is_apart = argc > 2 && strcmp(argv[2], "apart") == 0;
    pthread_t thread;
    for (int number = 0; number < THREADS; number++) {
        pthread_mutex_init(&locks[number], NULL);
        if (pthread_create(&thread, NULL, append_all, &locks[is_apart ? number : 0]) != 0)
            return 1;
    }
    if (pthread_create(&thread, NULL, loop, NULL) != 0)
        return 1;
    ready(argc, argv);
    while (goes_on())
        usleep(100000);
    return 0;
}
