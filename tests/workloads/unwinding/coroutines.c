// Two coroutines on separate stacks, whose root is the C library's entry function: [entry] > ping > leaf and [entry]
// > pong > passes > leaf. Main only switches to them: main > run > swapcontext.
#include <ucontext.h>

#include "../lifetime.h"

enum { STACK_BYTES = 1 << 16 };

static volatile unsigned long sink;
static ucontext_t main_context, ping_context, pong_context;

static void leaf(void) { sink += spin(200000); }

static void ping(void) {
    for (;;) {
        leaf();
        swapcontext(&ping_context, &pong_context);
    }
}

static void passes(void) {
    leaf();
    sink++;
}

static void pong(void) {
    for (;;) {
        passes();
        swapcontext(&pong_context, &main_context);
    }
}

static void make(ucontext_t *context, char *stack, void (*entry)(void)) {
    getcontext(context);
    context->uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK_BYTES};
    context->uc_link = NULL;
    makecontext(context, entry, 0);
}

static void run(void) {
    while (goes_on())
        swapcontext(&main_context, &ping_context);
}

int main(int argc, char **argv) {
    static char stacks[2][STACK_BYTES];
    make(&ping_context, stacks[0], ping);
    make(&pong_context, stacks[1], pong);
    ready(argc, argv);
    run();
    return 0;
}
