// Cyclic stacks: main > run > a busy function whose frame record leads back to itself. argv[2] selects the mode:
//   pointer  no CFI, the frame record leads to itself (default)
//   pair     no CFI, two frame records lead to each other
//   table    CFI says that the caller's frame is where the frame pointer leads
#include <string.h>

#include "../lifetime.h"

void pointer_ring(unsigned long steps);
void pair_ring(unsigned long steps);
void table_ring(unsigned long steps);

// Two frame records, each a frame pointer and a return address. \first and \second are the offsets of the next
// record. The stack pointer is aligned, so that no row can be computed from the instructions.
__asm__(
    ".macro ring name first second\n"
    ".globl \\name\n.type \\name, @function\n"
    "\\name:\n"
    "push %rbp\n"
    "mov %rsp, %rdx\n"
    "and $-16, %rsp\n"
    "sub $48, %rsp\n"
    "lea 1f(%rip), %rax\n"
    "mov %rax, 8(%rsp)\n"
    "mov %rax, 24(%rsp)\n"
    "lea \\first(%rsp), %rax\n"
    "mov %rax, (%rsp)\n"
    "lea \\second(%rsp), %rax\n"
    "mov %rax, 16(%rsp)\n"
    "mov %rsp, %rbp\n"
    "1: dec %rdi\n"
    "jnz 1b\n"
    "mov %rdx, %rsp\n"
    "pop %rbp\n"
    "ret\n"
    ".size \\name, . - \\name\n"
    ".endm\n"
    ".text\n"
    "ring pointer_ring 0 0\n"
    "ring pair_ring 16 0\n"
    ".cfi_startproc\n"
    ".cfi_def_cfa %rbp, 16\n"
    ".cfi_offset %rbp, -16\n"
    "ring table_ring 0 0\n"
    ".cfi_endproc\n");

static void run(void (*ring)(unsigned long)) {
    while (goes_on())
        for (int time = 0; time < 8; time++)
            ring(1000000);
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[2] : "pointer";
    ready(argc, argv);
    run(strcmp(mode, "table") == 0 ? table_ring : strcmp(mode, "pair") == 0 ? pair_ring : pointer_ring);
    return 0;
}
