// Code whose call frame information uses registers of the leaf: main > run > calls > one of these functions. argv[2] selects:
//   cfa     in_r9: the canonical frame address is at r9, below it an aligned frame (as in ciphers of OpenSSL)
//   return  in_r11: the return address is in r11 and not on the stack (default)
//   vfork   vfork of the C library, whose return address is in rdi while the kernel runs
//   signal  caml_like > leaf: the augmentation `S` of .cfi_signal_frame with ordinary rules (as in the runtime of OCaml 5)
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lifetime.h"

static volatile unsigned long sink;

void in_r9(void);
void in_r11(void);
void caml_like(void (*function)(void));
__asm__(
    ".text\n"
    ".globl in_r9\n.type in_r9, @function\n"
    "in_r9:\n.cfi_startproc\n"
    "lea 8(%rsp), %r9\n.cfi_def_cfa %r9, 0\n"
    "sub $264, %rsp\nand $-64, %rsp\n"
    "mov $400000, %ecx\n1: dec %ecx\njnz 1b\n"
    "lea -8(%r9), %rsp\n.cfi_def_cfa %rsp, 8\n"
    "ret\n.cfi_endproc\n.size in_r9, . - in_r9\n"
    ".globl in_r11\n.type in_r11, @function\n"
    "in_r11:\n.cfi_startproc\n"
    "pop %r11\n.cfi_adjust_cfa_offset -8\n.cfi_register %rip, %r11\n"
    "mov $400000, %ecx\n1: dec %ecx\njnz 1b\n"
    "jmp *%r11\n.cfi_endproc\n.size in_r11, . - in_r11\n"
    ".globl caml_like\n.type caml_like, @function\n"
    "caml_like:\n.cfi_startproc\n.cfi_signal_frame\n"
    "sub $24, %rsp\n.cfi_adjust_cfa_offset 24\n"
    "call *%rdi\nnop\n"
    "add $24, %rsp\n.cfi_adjust_cfa_offset -24\n"
    "ret\n.cfi_endproc\n.size caml_like, . - caml_like\n");

static void leaf(void) { sink += spin(400000); }

static void spawns(void) {
    pid_t child = vfork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
}

static void calls(const char *mode) {
    if (strcmp(mode, "cfa") == 0)
        in_r9();
    else if (strcmp(mode, "vfork") == 0)
        spawns();
    else if (strcmp(mode, "signal") == 0)
        caml_like(leaf);
    else
        in_r11();
    sink++;
}

static void run(const char *mode) {
    while (goes_on())
        for (int time = 0; time < 8; time++)
            calls(mode);
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run(argc > 2 ? argv[2] : "return");
    return 0;
}
