/* Binds functions lazily: main > run > call_all > _dl_runtime_resolve_... > _dl_fixup. Each child binds all functions of
 * lazy.so again. */
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <sys/wait.h>

#include "lifetime.h"

static void (*load_call_all(void))(void) {
    char program[PATH_MAX] = "", path[PATH_MAX + 16];
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return NULL;
    snprintf(path, sizeof path, "%s/lazy.so", dirname(program));
    void *library = dlopen(path, RTLD_LAZY);
    return library == NULL ? NULL : (void (*)(void))dlsym(library, "call_all");
}

static int run(void (*call_all)(void)) {
    while (goes_on()) {
        pid_t child = fork();
        if (child == 0) {
            call_all();
            _exit(0);
        }
        if (child < 0 || waitpid(child, NULL, 0) != child)
            return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    void (*call_all)(void) = load_call_all();
    if (call_all == NULL)
        return 1;
    ready(argc, argv);
    return run(call_all);
}
