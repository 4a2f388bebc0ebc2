// Functions whose call frame information describes prologues but not epilogues, as the compiler of NativeAOT programs writes it,
// in the section that this compiler uses: main > run > managed.
#include "../lifetime.h"

#define FUNCTIONS 400
#define FUNCTION_BYTES 64

extern char managed[];
// Each pair of functions: one with a CFA at rsp and two exits, one with a CFA at rbp. What an epilogue pops is in no cache, so that the
// instruction takes time: on some CPUs, ticks hit few others.
__asm__(
    ".section __managedcode, \"ax\", @progbits\n"
    ".balign 64\n"
    ".globl managed\n.type managed, @function\n"
    "managed:\n"
    ".rept 200\n"
    ".balign 64\n"
    ".cfi_startproc\n"
    "push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbp, 0\n"
    "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx, 0\n"
    "sub $24, %rsp\n.cfi_adjust_cfa_offset 24\n"
    "test $1, %edi\n"
    "jz 1f\n"
    "clflush 24(%rsp)\nmfence\n"
    "add $24, %rsp\npop %rbx\npop %rbp\nret\n"
    "1: xor %eax, %eax\n"
    "clflush 24(%rsp)\nmfence\n"
    "add $24, %rsp\npop %rbx\npop %rbp\nret\n"
    ".cfi_endproc\n"
    ".balign 64\n"
    ".cfi_startproc\n"
    "push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbp, 0\n"
    "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx, 0\n"
    "lea 8(%rsp), %rbp\n.cfi_def_cfa %rbp, 16\n"
    "sub $24, %rsp\n"
    "clflush -8(%rbp)\nmfence\n"
    "lea -8(%rbp), %rsp\npop %rbx\npop %rbp\nret\n"
    ".cfi_endproc\n"
    ".endr\n"
    ".size managed, . - managed\n"
    ".text\n");

static void run(void) {
    while (goes_on())
        for (long call = 0; call < 1000L * FUNCTIONS; call++)
            ((void (*)(long))(managed + call % FUNCTIONS * FUNCTION_BYTES))(call / FUNCTIONS);
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
