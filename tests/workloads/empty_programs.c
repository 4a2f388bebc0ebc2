/* Two BPF programs that return at once, at the raw tracepoints `sched_switch` and `sched_waking`: what any program there costs. */
#include <errno.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/syscall.h>

#include "lifetime.h"

static int bpf(enum bpf_cmd command, union bpf_attr *attributes) {
    return (int)syscall(SYS_bpf, command, attributes, sizeof(*attributes));
}

static int load(void) {
    static const struct bpf_insn program[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof(attributes));
    attributes.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT;
    attributes.insns = (unsigned long)program;
    attributes.insn_cnt = sizeof(program) / sizeof(program[0]);
    attributes.license = (unsigned long)"GPL";
    return bpf(BPF_PROG_LOAD, &attributes);
}

int main(int argc, char **argv) {
    static const char *const tracepoints[] = {"sched_switch", "sched_waking"};
    for (int at = 0; at < 2; at++) {
        union bpf_attr attributes;
        memset(&attributes, 0, sizeof(attributes));
        attributes.raw_tracepoint.name = (unsigned long)tracepoints[at];
        attributes.raw_tracepoint.prog_fd = load();
        /* The link lasts as long as its descriptor. */
        if (bpf(BPF_RAW_TRACEPOINT_OPEN, &attributes) < 0) {
            fprintf(stderr, "failed to attach to %s: %s\n", tracepoints[at], strerror(errno));
            return 1;
        }
    }
    ready(argc, argv);
    while (goes_on())
        usleep(100000);
    return 0;
}
