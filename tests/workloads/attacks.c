/* JIT code of a process that tries to block its profiler: main > run > [JIT code]. argv[2] is the attack:
 *   lease      a lease on its perf map that it keeps (fcntl(2), F_SETLEASE)
 *   library    a lease on a file that it has mapped, and whose code it runs
 *   fuse       a file system in user space at $TMPDIR, which does not answer
 *   rights     a diagnostics socket that answers with file descriptors that the kernel closes slowly
 *   stack      a thread waits whose stack is in memory without pages, and no thread answers its page faults
 *   file       a thread waits whose stack is in a mapped file, of a file system which answers no read
 *   silent     a diagnostics socket that accepts and never answers
 *   endless    a diagnostics socket that answers without end
 *   backlog    a diagnostics socket with a full backlog
 *   junk       a perf map of 256 MiB, with equal lines of six bytes
 *   distinct   a perf map of 20 million functions */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "jit_code.h"
#include "lifetime.h"

enum { MAPPING_BYTES = 4096, LINGER_SECONDS = 60, MAX_CONNECTIONS = 16 };

static const char OK[] = "DOTNET_IPC_V1\0\x1c\0\xff\0\0\0\x07\0\0\0\0\0\0\0";

static void require(int is_true, const char *what) {
    if (!is_true) {
        perror(what);
        exit(1);
    }
}

static const char *directory(void) {
    const char *path = getenv("TMPDIR");
    return path ? path : "/tmp";
}

static function *generate(void) {
    char *code = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(code != MAP_FAILED, "mmap");
    memcpy(code, CODE, sizeof CODE);
    mprotect(code, MAPPING_BYTES, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(code, code + MAPPING_BYTES);
    return (function *)code;
}

static int create(const char *path) {
    int file = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
    require(file >= 0, path);
    return file;
}

static void hold_lease(int file) {
    signal(SIGIO, SIG_IGN);
    require(fcntl(file, F_SETLEASE, F_WRLCK) == 0, "F_SETLEASE");
}

static void lease_map(void) {
    char path[256];
    snprintf(path, sizeof path, "%s/perf-%d.map", directory(), getpid());
    hold_lease(create(path));
}

static function *lease_library(void) {
    char path[256];
    snprintf(path, sizeof path, "%s/leased.so", directory());
    int library = create(path);
    require(write(library, CODE, sizeof CODE) == sizeof CODE, "write");
    void *code = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE, library, 0);
    require(code != MAP_FAILED, "mmap");
    hold_lease(library);
    return (function *)code;
}

static FILE *create_map(void) {
    char path[256];
    snprintf(path, sizeof path, "%s/perf-%d.map", directory(), getpid());
    FILE *map = fopen(path, "wx");
    require(map != NULL, path);
    return map;
}

static void write_distinct(void) {
    enum { FUNCTIONS = 20000000 };
    FILE *map = create_map();
    for (int function = 1; function <= FUNCTIONS; function++)
        require(fprintf(map, "%x 8 a\n", 8 * function) > 0, "fprintf");
    require(fclose(map) == 0, "fclose");
}

static void write_junk(void) {
    enum { LINES = 1 << 16, TIMES = 683 };
    static const char LINE[] = "1 1 a\n";
    FILE *map = create_map();
    char *lines = malloc(LINES * (sizeof LINE - 1));
    require(lines != NULL, "malloc");
    for (int line = 0; line < LINES; line++)
        memcpy(lines + line * (sizeof LINE - 1), LINE, sizeof LINE - 1);
    for (int time = 0; time < TIMES; time++)
        require(fwrite(lines, sizeof LINE - 1, LINES, map) == LINES, "fwrite");
    require(fclose(map) == 0, "fclose");
    free(lines);
}

/* Mounts a file system whose requests are never answered, in a mount namespace of its own. */
/* Mounts a file system in user space, and returns the device of its requests. */
static int mount_silent(const char *path) {
    require(unshare(CLONE_NEWNS) == 0, "unshare");
    require(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "MS_PRIVATE");
    int device = open("/dev/fuse", O_RDWR);
    require(device >= 0, "/dev/fuse");
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    require(mount("silent", path, "fuse", 0, options) == 0, "mount");
    return device;
}

static void answer(int device, unsigned long request, int error, const void *content, size_t length) {
    char bytes[512];
    struct fuse_out_header header = {.len = sizeof header + length, .error = -error, .unique = request};
    memcpy(bytes, &header, sizeof header);
    if (length > 0)
        memcpy(bytes + sizeof header, content, length);
    require(write(device, bytes, header.len) == (ssize_t)header.len, "answer");
}

/* A file system with one file, which answers all requests but those to read it. */
static void *answer_all_but_reads(void *device_number) {
    enum { ROOT = 1, FILE_NODE = 2, VALID_SECONDS = 60 };
    int device = (int)(long)device_number;
    static char bytes[1 << 20];
    while (read(device, bytes, sizeof bytes) > 0) {
        const struct fuse_in_header *request = (const struct fuse_in_header *)bytes;
        struct fuse_attr file = {.ino = FILE_NODE, .size = MAPPING_BYTES, .mode = S_IFREG | 0600, .nlink = 1};
        struct fuse_attr root = {.ino = ROOT, .mode = S_IFDIR | 0700, .nlink = 1};
        if (request->opcode == FUSE_INIT) {
            struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION,
                                         .max_write = MAPPING_BYTES};
            answer(device, request->unique, 0, &init, sizeof init);
        } else if (request->opcode == FUSE_LOOKUP) {
            struct fuse_entry_out entry = {.nodeid = FILE_NODE, .entry_valid = VALID_SECONDS,
                                           .attr_valid = VALID_SECONDS, .attr = file};
            answer(device, request->unique, 0, &entry, sizeof entry);
        } else if (request->opcode == FUSE_GETATTR) {
            struct fuse_attr_out attributes = {.attr_valid = VALID_SECONDS,
                                               .attr = request->nodeid == ROOT ? root : file};
            answer(device, request->unique, 0, &attributes, sizeof attributes);
        } else if (request->opcode == FUSE_OPEN) {
            struct fuse_open_out opened = {0};
            answer(device, request->unique, 0, &opened, sizeof opened);
        } else if (request->opcode == FUSE_FLUSH) {
            answer(device, request->unique, ENOSYS, NULL, 0);
        }
    }
    return NULL;
}

/* A mapping of the file. */
static void *unreadable_file(void) {
    pthread_t server;
    char path[256];
    snprintf(path, sizeof path, "%s/files", directory());
    require(mkdir(path, 0700) == 0, path);
    int device = mount_silent(path);
    require(pthread_create(&server, NULL, answer_all_but_reads, (void *)(long)device) == 0, "thread");
    strcat(path, "/stack");
    int file = open(path, O_RDWR);
    require(file >= 0, path);
    void *memory = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    require(memory != MAP_FAILED, "mmap");
    /* At the end of the process, no thread would answer. */
    close(file);
    return memory;
}

static void *unanswered_memory(void) {
    struct uffdio_api api = {.api = UFFD_API};
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    require(faults >= 0 && ioctl(faults, UFFDIO_API, &api) == 0, "userfaultfd");
    void *memory = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED, "mmap");
    struct uffdio_register range = {.range = {(unsigned long)memory, MAPPING_BYTES},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    require(ioctl(faults, UFFDIO_REGISTER, &range) == 0, "UFFDIO_REGISTER");
    return memory;
}

/* pause(2) does not use the stack. */
static void *wait_with_stack(void *stack) {
    __asm__ volatile("mov %%rsp, %%rbx; mov %0, %%rsp; syscall; mov %%rbx, %%rsp"
                     :
                     : "r"(stack), "a"((long)SYS_pause)
                     : "rbx", "rcx", "r11", "memory");
    return NULL;
}

/* The start time, field 22 of /proc/PID/stat. */
static unsigned long start_ticks(void) {
    char text[1024] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    require(file && fread(text, 1, sizeof text - 1, file) > 0, "stat");
    fclose(file);
    char *field = strrchr(text, ')');
    for (int number = 2; number < 22; number++)
        field = strchr(field + 1, ' ');
    return strtoul(field, NULL, 10);
}

static int listen_as_runtime(int backlog) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/dotnet-diagnostic-%d-%lu-socket", directory(), getpid(),
             start_ticks());
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    require(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    require(listen(listener, backlog) == 0, "listen");
    return listener;
}

/* A connected TCP socket with unsent bytes: the last one who closes it waits until they are sent. */
static int lingering_socket(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    require(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0, "TCP");
    getsockname(listener, (struct sockaddr *)&address, &size);
    int sender = socket(AF_INET, SOCK_STREAM, 0);
    require(connect(sender, (struct sockaddr *)&address, size) == 0, "connect");
    struct linger linger = {.l_onoff = 1, .l_linger = LINGER_SECONDS};
    setsockopt(sender, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    static char bytes[1 << 16];
    while (send(sender, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    return sender;
}

static void send_descriptor(int connection) {
    int sent = lingering_socket();
    char control[CMSG_SPACE(sizeof sent)] = {0};
    struct iovec bytes = {.iov_base = (void *)OK, .iov_len = sizeof OK - 1};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof sent);
    memcpy(CMSG_DATA(header), &sent, sizeof sent);
    /* Linux 6.16 refuses it where the peer does not want descriptors. */
    sendmsg(connection, &message, MSG_NOSIGNAL);
    /* The receiver is the last one that closes it. */
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    close(sent);
}

static const char *attack;

static void *serve(void *listener) {
    int connections[MAX_CONNECTIONS];
    for (int count = 0; count < MAX_CONNECTIONS; count++) {
        int connection = connections[count] = accept((int)(long)listener, NULL, NULL);
        if (strcmp(attack, "rights") == 0)
            send_descriptor(connection);
        else if (strcmp(attack, "endless") == 0)
            while (send(connection, OK, sizeof OK - 1, MSG_NOSIGNAL) > 0) {
            }
    }
    return NULL;
}

static void fill_backlog(int listener) {
    struct sockaddr_un address;
    socklen_t size = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &size);
    int client;
    do
        client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    while (connect(client, (struct sockaddr *)&address, size) == 0);
}

static void begin(void) {
    if (strcmp(attack, "lease") == 0) {
        lease_map();
    } else if (strcmp(attack, "fuse") == 0) {
        mount_silent(directory());
    } else if (strcmp(attack, "stack") == 0 || strcmp(attack, "file") == 0) {
        pthread_t thread;
        void *stack = strcmp(attack, "file") == 0 ? unreadable_file() : unanswered_memory();
        require(pthread_create(&thread, NULL, wait_with_stack, stack) == 0, "thread");
    } else if (strcmp(attack, "junk") == 0) {
        write_junk();
    } else if (strcmp(attack, "distinct") == 0) {
        write_distinct();
    } else if (strcmp(attack, "backlog") == 0) {
        fill_backlog(listen_as_runtime(0));
    } else {
        pthread_t thread;
        require(pthread_create(&thread, NULL, serve, (void *)(long)listen_as_runtime(16)) == 0, "thread");
    }
}

static void run(function *code) {
    while (goes_on())
        code(1000000);
}

int main(int argc, char **argv) {
    attack = argc > 2 ? argv[2] : "lease";
    int is_library = strcmp(attack, "library") == 0;
    function *code = is_library ? lease_library() : generate();
    if (!is_library)
        begin();
    ready(argc, argv);
    run(code);
    return 0;
}
