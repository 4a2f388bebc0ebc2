// Busy signal handlers: main > run > interrupted > [signal return of the C library] > handler > leaf. argv[2] selects
// what is interrupted, and the stack of the handler:
//   alternate  any instruction, by a timer; an alternate stack (default)
//   same       any instruction, by a timer; the interrupted stack
//   fault      the first instruction of `interrupted`, which faults; an alternate stack
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
    // Continue behind the faulting instruction.
    if (number == SIGILL)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += FAULT_BYTES;
}

static void interrupted(void) { sink += spin(100000); }

// The instruction before it belongs to another function, which is never called.
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
