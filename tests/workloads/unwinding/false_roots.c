// Stacks that end at a return address or a frame pointer of 0, below their root:
//
//   switched  a function on a stack of its own, which has no return address (as in interpreters, or Go's systemstack)
//   bare      a function without call frame information, whose frame pointer is 0
#include <string.h>

#include "../lifetime.h"

extern void run_switched(void *stack_end, unsigned long steps);
extern void run_bare(unsigned long steps);

__asm__(
    ".text\n"
    ".type run_switched, @function\n"
    "run_switched:\n"
    ".cfi_startproc\n"
    "push %rbx\n"
    ".cfi_adjust_cfa_offset 8\n"
    ".cfi_offset %rbx, -16\n"
    "mov %rsp, %rbx\n"
    "mov %rdi, %rsp\n"
    // The word above this stack is 0: the place of a return address.
    "jmp switched\n"
    ".cfi_endproc\n"
    ".size run_switched, . - run_switched\n"

    ".type switched, @function\n"
    "switched:\n"
    ".cfi_startproc\n"
    "1: dec %rsi\n"
    "jnz 1b\n"
    "mov %rbx, %rsp\n"
    "pop %rbx\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size switched, . - switched\n"

    ".type run_bare, @function\n"
    "run_bare:\n"
    "push %rbp\n"
    "xor %ebp, %ebp\n"
    "1: dec %rdi\n"
    "jnz 1b\n"
    "pop %rbp\n"
    "ret\n"
    ".size run_bare, . - run_bare\n");

int main(int argc, char **argv) {
    static char stack[4096] __attribute__((aligned(16)));
    const unsigned long steps = 10000000;
    int is_bare = argc > 2 && strcmp(argv[2], "bare") == 0;
    ready(argc, argv);
    while (goes_on()) {
        if (is_bare)
            run_bare(steps);
        else
            run_switched(stack + sizeof stack - 64, steps);
    }
    return 0;
}
