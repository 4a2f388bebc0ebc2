/* 200 busy threads named worker-0 ... worker-199: thread_main > burn, each with the same share. Threads become busy
 * after all have started, because busy threads would delay the start of the others. */
#include <pthread.h>

#include "lifetime.h"

enum { THREADS = 200 };

static volatile unsigned long sink;
static pthread_barrier_t start;

static void burn(void) { sink += spin(200000); }

static void *thread_main(void *number) {
    char name[16];
    snprintf(name, sizeof name, "worker-%ld", (long)number);
    pthread_setname_np(pthread_self(), name);
    pthread_barrier_wait(&start);
    while (goes_on())
        burn();
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS + 1);
    for (long number = 0; number < THREADS; number++)
        if (pthread_create(&threads[number], NULL, thread_main, (void *)number) != 0)
            return 1;
    ready(argc, argv);
    pthread_barrier_wait(&start);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    return 0;
}
