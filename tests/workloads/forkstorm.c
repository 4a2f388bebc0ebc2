/* Many short-lived processes: main forks children one after the other. Each executes this program as `forkstorm
 * child` and burns about five milliseconds (main > child > burn_in_child). It ends after argv[1] seconds, and after argv[2] children if
 * that is given. Prints "children N" at the end. */
#include <limits.h>
#include <string.h>
#include <sys/wait.h>

#include "lifetime.h"

static volatile unsigned long sink;

static void burn_in_child(void) { sink += spin(4000000); }

static void child(void) {
    burn_in_child();
    sink++;
}

static int start_child(char *program) {
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", program, "child", (char *)NULL);
        _exit(127);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    return status;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        child();
        return 0;
    }
    int children = 0, most = argc > 2 ? atoi(argv[2]) : INT_MAX;
    ready(argc, argv);
    for (; goes_on() && children < most; children++)
        if (start_child(argv[0]) != 0)
            return 1;
    printf("children %d\n", children);
    return 0;
}
