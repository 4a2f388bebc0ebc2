/* What this capture was recorded of: _start > main > run > alpha 50 %, beta 25 %, and generated code 25 %, which
 * /tmp/perf-PID.map names in the way of .NET.
 *
 * Without a C library, so that the capture holds one small file; for x86-64. */
#include <stddef.h>

enum { WRITE = 1, OPEN = 2, MMAP = 9, GETPID = 39, EXIT = 60, UNLINK = 87, CLOCK_GETTIME = 228 };
enum { READ_WRITE_EXECUTE = 7, PRIVATE_ANONYMOUS = 0x22, WRITE_CREATE = 0x41, SECONDS = 3 };

static volatile unsigned long sink;

static long call(long number, long a, long b, long c, long d, long e) {
    register long fourth __asm__("r10") = d, fifth __asm__("r8") = e, sixth __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return number;
}

/* push a frame; count the first argument down to zero; pop it; return. */
static const unsigned char CODE[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3};

typedef void function(unsigned long steps);

static void alpha(function *spin) { spin(100000); sink++; }
static void beta(function *spin) { spin(50000); sink++; }

static char *append(char *to, const char *text) {
    while (*text) *to++ = *text++;
    return to;
}

static char *append_number(char *to, unsigned long number, unsigned base) {
    char digits[24];
    int count = 0;
    do digits[count++] = "0123456789abcdef"[number % base]; while (number /= base);
    while (count) *to++ = digits[--count];
    return to;
}

static void write_map(const char *path, void *code) {
    char text[256], *end = append_number(text, (unsigned long)code, 16);
    end = append_number(append(end, " "), sizeof CODE, 16);
    end = append(end, " void [demo] Demo.Program::Generated(int64)[Optimized]\n");
    long file = call(OPEN, (long)path, WRITE_CREATE, 0644, 0, 0);
    call(WRITE, file, (long)text, end - text, 0, 0);
}

static long now_seconds(void) {
    long now[2];
    call(CLOCK_GETTIME, 1, (long)now, 0, 0, 0);
    return now[0];
}

/* The same steps in the program itself. The variable in memory gives it a frame. */
static void spin(unsigned long steps) {
    volatile unsigned long in_memory = steps;
    steps = in_memory;
    while (--steps) __asm__ volatile("");
}

static void run(function *generated) {
    long end = now_seconds() + SECONDS;
    while (now_seconds() < end) {
        alpha(spin);
        beta(spin);
        generated(50000);
    }
    sink++;
}

int main(void) {
    unsigned char *code =
        (unsigned char *)call(MMAP, 0, 4096, READ_WRITE_EXECUTE, PRIVATE_ANONYMOUS, -1);
    for (size_t byte = 0; byte < sizeof CODE; byte++) code[byte] = CODE[byte];
    char path[64], *end = append_number(append(path, "/tmp/perf-"), call(GETPID, 0, 0, 0, 0, 0), 10);
    *append(end, ".map") = 0;
    write_map(path, code);
    run((function *)code);
    call(UNLINK, (long)path, 0, 0, 0, 0);
    return 0;
}

__asm__(".globl _start\n_start: xor %ebp, %ebp\n call main\n mov %eax, %edi\n mov $60, %eax\n syscall\n");
