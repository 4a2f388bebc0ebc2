// Calls of functions that do not return, as last instructions: main > run > outer > inner > never_returns > leaf. The
// return addresses in outer and inner are the first addresses of the next functions, neighbour_N, which are never
// called.
#include "../lifetime.h"

static volatile unsigned long sink;

static void leaf(void) { sink += spin(100000); }

__attribute__((noreturn)) void never_returns(void);
void never_returns(void) {
    while (goes_on())
        leaf();
    exit(0);
}

// In assembly, so that neither code nor padding is between the call and the next function.
void inner(void);
void outer(void);

__asm__(
    ".macro last_call name callee\n"
    ".globl \\name\n.type \\name, @function\n"
    "\\name:\n.cfi_startproc\n"
    "sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n"
    "call \\callee\n"
    ".cfi_endproc\n.size \\name, . - \\name\n"
    ".endm\n"
    // Its frame has another size: an unwinder that attributes the return address to it finds a wrong caller.
    ".macro neighbour name\n"
    ".globl \\name\n.type \\name, @function\n"
    "\\name:\n.cfi_startproc\n"
    ".cfi_adjust_cfa_offset 48\n"
    "ret\n.cfi_endproc\n.size \\name, . - \\name\n"
    ".endm\n"
    ".text\n"
    "last_call inner never_returns\n"
    "neighbour neighbour_1\n"
    "last_call outer inner\n"
    "neighbour neighbour_2\n");

static void run(void) {
    outer();
    sink++;
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
