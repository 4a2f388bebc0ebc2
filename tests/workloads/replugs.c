/* Loads two libraries in turns, each where the other one was: main > run > small_burn or large_burn. Their code is at the
 * same addresses and has frames of different sizes. argv[2]: milliseconds for which each is loaded. */
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>

#include "lifetime.h"

static volatile unsigned long sink;

static void *load(const char *name) {
    char program[PATH_MAX] = "", path[PATH_MAX + 16];
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return NULL;
    snprintf(path, sizeof path, "%s/%s", dirname(program), name);
    return dlopen(path, RTLD_NOW);
}

static int run(double milliseconds) {
    static const char *const libraries[] = {"small.so", "large.so"};
    static const char *const functions[] = {"small_burn", "large_burn"};
    void (*previous)(void) = NULL;
    for (int turn = 0; goes_on(); turn ^= 1) {
        void *library = load(libraries[turn]);
        if (library == NULL)
            return 1;
        void (*burn)(void) = (void (*)(void))dlsym(library, functions[turn]);
        if (burn == NULL || (previous != NULL && burn != previous))
            return 2;
        previous = burn;
        double ends_at = now_seconds() + milliseconds / 1e3;
        while (now_seconds() < ends_at)
            burn();
        sink++;
        dlclose(library);
    }
    return 0;
}

int main(int argc, char **argv) {
    ready(argc, argv);
    return run(argc > 2 ? atof(argv[2]) : 50);
}
