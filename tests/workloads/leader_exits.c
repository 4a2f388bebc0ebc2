/* A process whose first thread exits while another one computes: thread_main > compute. */
#include <pthread.h>

#include "lifetime.h"

static unsigned long compute(void) { return spin(1000000); }

static void *thread_main(void *unused) {
    unsigned long sink = 0;
    while (goes_on())
        sink += compute();
    (void)unused;
    exit(sink == 0);
}

int main(int argc, char **argv) {
    pthread_t thread;
    ready(argc, argv);
    if (pthread_create(&thread, NULL, thread_main, NULL) != 0)
        return 1;
    pthread_exit(NULL);
}
