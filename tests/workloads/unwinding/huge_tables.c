// A program with 300,000 uncalled functions, for ten megabytes of unwind tables, and one busy function behind them:
// main > run > behind_them > leaf.
#include "../lifetime.h"

static volatile unsigned long sink;

void leaf(void);
void leaf(void) { sink += spin(1000000); }

void behind_them(void);
__asm__(
    ".text\n"
    ".rept 300000\n"
    ".cfi_startproc\n"
    "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx, 0\n"
    "pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
    "ret\n"
    ".cfi_endproc\n"
    ".endr\n"
    ".globl behind_them\n.type behind_them, @function\n"
    "behind_them:\n.cfi_startproc\n"
    "sub $24, %rsp\n.cfi_adjust_cfa_offset 24\n"
    "call leaf\n"
    "add $24, %rsp\n.cfi_adjust_cfa_offset -24\n"
    "ret\n.cfi_endproc\n.size behind_them, . - behind_them\n");

static void run(void) {
    while (goes_on())
        behind_them();
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
