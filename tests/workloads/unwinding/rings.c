// Stacks that point into themselves: main > run > a function that makes a ring of what ought to lead to its caller, and
// is busy in it. argv[2] says who believes it:
//   pointer  who follows frame pointers: no table tells of the function, its frame pointer leads to itself (default)
//   pair     the same, where the frame pointer leads to a second record and that one back to the first
//   table    who follows tables: that of the function says that its caller is where the frame pointer leads
#include <string.h>

#include "../lifetime.h"

void pointer_ring(unsigned long steps);
void pair_ring(unsigned long steps);
void table_ring(unsigned long steps);

// Two records of a frame pointer and a return address; \first and \second say which record each one leads to.
__asm__(
    ".macro ring name first second\n"
    ".globl \\name\n.type \\name, @function\n"
    "\\name:\n"
    "push %rbp\n"
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
    "add $48, %rsp\n"
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
