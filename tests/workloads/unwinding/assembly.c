// Functions in assembly without call frame information, among functions that have it: main > run > without_cfi > inner_without_cfi.
// Both use the frame pointer register for other purposes.
#include "../lifetime.h"

void without_cfi(unsigned long steps);

__asm__(
    ".text\n"
    ".globl inner_without_cfi\n.type inner_without_cfi, @function\n"
    "inner_without_cfi:\n"
    "push %rbp\n"
    "push %rbx\n"
    "sub $40, %rsp\n"
    "mov $1, %ebp\n"
    "1: dec %rdi\n"
    "jnz 1b\n"
    "add $40, %rsp\n"
    "pop %rbx\n"
    "pop %rbp\n"
    "ret\n"
    ".size inner_without_cfi, . - inner_without_cfi\n"
    ".globl without_cfi\n.type without_cfi, @function\n"
    "without_cfi:\n"
    "push %rbx\n"
    "push %rbp\n"
    "sub $24, %rsp\n"
    "mov %rdi, %rbx\n"
    "mov $2, %ebp\n"
    "call inner_without_cfi\n"
    "1: dec %rbx\n"
    "jnz 1b\n"
    "add $24, %rsp\n"
    "pop %rbp\n"
    "pop %rbx\n"
    "ret\n"
    ".size without_cfi, . - without_cfi\n");

static void run(void) {
    while (goes_on())
        without_cfi(1000000);
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
