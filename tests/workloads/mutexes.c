/* Mutexes of the GNU C library that threads wait for, beside a thread that has none and computes in `report`. By the argument after
 * the seconds:
 *
 * deadlock: the threads debit and credit each have the mutex that the other one waits for.
 * computes, sleeps, reads, runs: four threads wait in `price` for the mutex that the thread owner has. It computes in `compute`, sleeps
 * in `rest`, reads an empty socket in `receive`, or waits in `convert` for a child process, named `converter`, that sleeps.
 *
 * Prints "owner TID" where one thread has the mutex. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "lifetime.h"

enum { WAITING = 4 };

static pthread_mutex_t accounts[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t prices = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both_own_one;
static atomic_int owner_tid;
static int sockets[2];
static volatile unsigned long sink;

static void *report(void *unused) {
    for (;;)
        sink += spin(100000);
    return unused;
}

/* Both threads have their first mutex before they wait for the other one. */
static __attribute__((noinline)) void debit(void) {
    pthread_mutex_lock(&accounts[0]);
    pthread_barrier_wait(&both_own_one);
    pthread_mutex_lock(&accounts[1]);
    sink += 1;
}

static __attribute__((noinline)) void credit(void) {
    pthread_mutex_lock(&accounts[1]);
    pthread_barrier_wait(&both_own_one);
    pthread_mutex_lock(&accounts[0]);
    sink += 1;
}

static void *debit_thread(void *unused) {
    prctl(PR_SET_NAME, "debit");
    debit();
    return unused;
}

static void *credit_thread(void *unused) {
    prctl(PR_SET_NAME, "credit");
    credit();
    return unused;
}

static __attribute__((noinline)) void compute(void) {
    for (;;)
        sink += spin(100000);
}

static __attribute__((noinline)) void rest(void) {
    struct timespec hour = {.tv_sec = 3600};
    while (nanosleep(&hour, NULL) == 0)
        ;
}

static __attribute__((noinline)) void receive(void) {
    char byte;
    while (recv(sockets[0], &byte, 1, 0) != 0)
        ;
}

static __attribute__((noinline)) void convert(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "converter");
        for (;;)
            pause();
    }
    waitpid(child, &status, 0);
    sink += status;
}

static void *owner_thread(void *mode) {
    prctl(PR_SET_NAME, "owner");
    pthread_mutex_lock(&prices);
    owner_tid = gettid();
    if (strcmp(mode, "computes") == 0)
        compute();
    else if (strcmp(mode, "sleeps") == 0)
        rest();
    else if (strcmp(mode, "runs") == 0)
        convert();
    else
        receive();
    return mode;
}

static __attribute__((noinline)) void price(void) {
    pthread_mutex_lock(&prices);
    sink += 1;
    pthread_mutex_unlock(&prices);
}

static void *price_thread(void *unused) {
    for (;;)
        price();
    return unused;
}

static int start(void *(*thread_main)(void *), void *argument) {
    pthread_t thread;
    return pthread_create(&thread, NULL, thread_main, argument);
}

int main(int argc, char **argv) {
    char *mode = argc > 2 ? argv[2] : "deadlock";
    int failed = start(report, NULL);
    pthread_barrier_init(&both_own_one, NULL, 2);
    if (strcmp(mode, "deadlock") == 0) {
        failed |= start(debit_thread, NULL) | start(credit_thread, NULL);
    } else {
        failed |= socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) | start(owner_thread, mode);
        while (!failed && owner_tid == 0)
            usleep(1000);
        for (int number = 0; number < WAITING; number++)
            failed |= start(price_thread, NULL);
    }
    if (failed)
        return 1;
    ready(argc, argv);
    printf("owner %d\n", owner_tid);
    fflush(stdout);
    while (goes_on())
        usleep(100000);
    return 0;
}
