/* Short-lived processes: each burns about three milliseconds (main > child > burn_in_child).
 *
 * Arguments: seconds, processes a minute, distinct executable files a minute, a folder. As many processes as there are
 * files execute a copy of this program with a build id of its own, which is removed at their end; the others execute
 * this program. Prints "turns N" at the end, the number of processes. */
#include <sys/wait.h>

#include "build_id.h"
#include "pace.h"

static volatile unsigned long sink;

static void burn_in_child(void) { sink += spin(2500000); }

static void child(void) {
    burn_in_child();
    sink++;
}

static int run_child(const char *program) {
    pid_t pid = fork();
    if (pid == 0) {
        execl(program, program, "child", (char *)NULL);
        _exit(127);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    return status;
}

static int run_copy(const char *folder, unsigned long number) {
    char copy[4096];
    snprintf(copy, sizeof copy, "%s/program-%lu", folder, number);
    if (copy_with_build_id("/proc/self/exe", copy, number) != 0)
        return 1;
    int status = run_child(copy);
    return unlink(copy) != 0 || status != 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        child();
        return 0;
    }
    if (argc != 5)
        return 1;
    double per_minute = atof(argv[2]), files_per_minute = atof(argv[3]);
    unsigned long turns = 0, files = 0;
    ready(argc, argv);
    while (next_turn(per_minute, &turns)) {
        int is_copy = files < turns * files_per_minute / per_minute;
        if ((is_copy ? run_copy(argv[4], ++files) : run_child("/proc/self/exe")) != 0)
            return 1;
    }
    print_turns(turns);
    return 0;
}
