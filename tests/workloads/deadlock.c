/* Four threads that move money between two accounts, whose locks they take in one order: main > serve > transfer. From the first
 * line on standard input on, every other thread takes the locks in the reverse order, until none goes on. */
#include <pthread.h>

#include "lifetime.h"

enum { THREADS = 4 };

static pthread_mutex_t accounts[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static volatile int is_reversed;
static volatile unsigned long sink;

static __attribute__((noinline)) void transfer(int from) {
    pthread_mutex_lock(&accounts[from]);
    sink += spin(100000);
    pthread_mutex_lock(&accounts[!from]);
    sink += spin(100000);
    pthread_mutex_unlock(&accounts[!from]);
    pthread_mutex_unlock(&accounts[from]);
}

static void *serve(void *number) {
    for (;;)
        transfer(is_reversed && *(int *)number % 2);
    return NULL;
}

int main(int argc, char **argv) {
    static int numbers[THREADS];
    pthread_t thread;
    for (int number = 0; number < THREADS; number++) {
        numbers[number] = number;
        if (pthread_create(&thread, NULL, serve, &numbers[number]) != 0)
            return 1;
    }
    ready(argc, argv);
    while (goes_on()) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        char byte;
        if (poll(&input, 1, 100) > 0 && read(0, &byte, 1) == 1)
            is_reversed = 1;
    }
    return 0;
}
