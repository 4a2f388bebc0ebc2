/* Threads that wait without end. Arguments: seconds, threads. */
#include <pthread.h>

#include "lifetime.h"

static void *park(void *unused) {
    for (;;)
        pause();
    return unused;
}

int main(int argc, char **argv) {
    enum { STACK_BYTES = 64 << 10 };
    int threads = argc > 2 ? atoi(argv[2]) : 1000;
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, STACK_BYTES) != 0)
        return 1;
    for (int number = 0; number < threads; number++)
        if (pthread_create(&thread, &attributes, park, NULL) != 0)
            return 1;
    ready(argc, argv);
    while (goes_on())
        usleep(100000);
    return 0;
}
