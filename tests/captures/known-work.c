/* What the captures `wall`, `off-cpu` and `system-calls` were recorded of. _start > main > work > each of these:
 *
 *     wait_long    sleeps 5 times 40 ms
 *     wait_short   sleeps 5 times 20 ms
 *     compute      150 ms of CPU time
 *     ask_often    30 calls of getppid
 *     ask_seldom   12 calls of getppid
 *
 * Without a C library, so that a capture holds one small file; for x86-64. */

enum { NANOSLEEP = 35, GETPPID = 110, CLOCK_GETTIME = 228, PROCESS_CPU_TIME = 2 };
enum { MILLISECOND = 1000000, SECOND = 1000 * MILLISECOND };

static volatile unsigned long sink;

static inline __attribute__((always_inline)) long call(long number, long first, long second) {
    __asm__ volatile("syscall" : "+a"(number) : "D"(first), "S"(second) : "rcx", "r11", "memory");
    return number;
}

static long cpu_time_ns(void) {
    long now[2];
    call(CLOCK_GETTIME, PROCESS_CPU_TIME, (long)now);
    return now[0] * SECOND + now[1];
}

static void sleep_five_times(long milliseconds) {
    long time[2] = {0, milliseconds * MILLISECOND};
    for (int count = 0; count < 5; count++) call(NANOSLEEP, (long)time, 0);
}

static void wait_long(void) { sleep_five_times(40); sink++; }
static void wait_short(void) { sleep_five_times(20); sink++; }

static void compute(void) {
    long end = cpu_time_ns() + 150L * MILLISECOND;
    while (cpu_time_ns() < end)
        for (int step = 0; step < 100000; step++) sink++;
}

static void ask_often(void) { for (int count = 0; count < 30; count++) call(GETPPID, 0, 0); sink++; }
static void ask_seldom(void) { for (int count = 0; count < 12; count++) call(GETPPID, 0, 0); sink++; }

static void work(void) {
    wait_long();
    compute();
    wait_short();
    ask_often();
    ask_seldom();
    sink++;
}

int main(void) {
    work();
    sink++;
    return 0;
}

__asm__(".globl _start\n_start: xor %ebp, %ebp\n call main\n mov %eax, %edi\n mov $60, %eax\n syscall\n");
