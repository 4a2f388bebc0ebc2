/* A process with a wanted process id, that of one which has ended: main > compute_with_reused_pid.
 *
 * Arguments: seconds, process id. */
#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "lifetime.h"

static unsigned long compute_with_reused_pid(void) { return spin(1000000); }

int main(int argc, char **argv) {
    if (argc != 3)
        return 1;
    pid_t pid = atoi(argv[2]);
    struct clone_args arguments = {
        .exit_signal = SIGCHLD, .set_tid = (unsigned long)&pid, .set_tid_size = 1};
    long child = syscall(SYS_clone3, &arguments, sizeof(arguments));
    if (child < 0) {
        perror("clone3");
        return 1;
    }
    if (child > 0) {
        waitpid(child, NULL, 0);
        return 0;
    }
    unsigned long sink = 0;
    ready(argc, argv);
    while (goes_on())
        sink += compute_with_reused_pid();
    return sink == 0;
}
