// Signal handlers that work: main > run > interrupted > [the C library's return from signals] > handler > leaf. argv[2]
// says what is interrupted, and where the handler's frames are:
//   alternate  anything at all, by a timer; on a stack of its own (default)
//   same       anything at all, by a timer; on the interrupted stack
//   fault      always the first instruction of `interrupted`, that faults; on a stack of its own
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#include "../lifetime.h"

enum { ALTERNATE_BYTES = 1 << 16, FAULT_BYTES = 2 };

static volatile unsigned long sink;

static void leaf(void) { sink += spin(400000); }

static void handler(int number, siginfo_t *info, void *context) {
    (void)info;
    leaf();
    // Behind the instruction that faulted.
    if (number == SIGILL)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += FAULT_BYTES;
}

static void interrupted(void) { sink += spin(100000); }

// The last instruction before it belongs to another function, that nobody calls.
void neighbour(void);
void faulting(void);
__asm__(
    ".text\n"
    ".globl neighbour\n.type neighbour, @function\n"
    "neighbour:\n.cfi_startproc\n.cfi_adjust_cfa_offset 48\nnop\n.cfi_endproc\n.size neighbour, . - neighbour\n"
    ".globl faulting\n.type faulting, @function\n"
    "faulting:\n.cfi_startproc\nud2\nret\n.cfi_endproc\n.size faulting, . - faulting\n");

static void install(const char *mode) {
    static char stack[ALTERNATE_BYTES];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (strcmp(mode, "same") != 0) {
        sigaltstack(&alternate, NULL);
        action.sa_flags |= SA_ONSTACK;
    }
    sigaction(SIGILL, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {.it_interval = {.tv_usec = 1700}, .it_value = {.tv_usec = 1700}};
    if (strcmp(mode, "fault") != 0)
        setitimer(ITIMER_REAL, &every, NULL);
}

static void run(void (*work)(void)) {
    while (goes_on())
        for (int time = 0; time < 8; time++)
            work();
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[2] : "alternate";
    install(mode);
    ready(argc, argv);
    run(strcmp(mode, "fault") == 0 ? faulting : interrupted);
    return 0;
}
