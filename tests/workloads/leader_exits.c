/* A process whose first thread exits while another one computes: thread_main > compute. With the argument `wait` after the
 * seconds, that thread waits: thread_main > wait_100_ms. */
#include <pthread.h>
#include <string.h>

#include "lifetime.h"

static int waits;

static unsigned long compute(void) { return spin(1000000); }

static unsigned long wait_100_ms(void) { return (unsigned long)usleep(100000); }

static void *thread_main(void *unused) {
    unsigned long sink = 0;
    while (goes_on())
        sink += waits ? wait_100_ms() : compute();
    (void)unused;
    exit(sink == 0 && !waits);
}

int main(int argc, char **argv) {
    pthread_t thread;
    waits = argc > 2 && strcmp(argv[2], "wait") == 0;
    ready(argc, argv);
    if (pthread_create(&thread, NULL, thread_main, NULL) != 0)
        return 1;
    pthread_exit(NULL);
}
