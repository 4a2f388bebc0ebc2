/* Four threads that read pages of the file argv[2], which it creates, one at a time: main > read_pages > load_page. No page is in
 * the page cache when it is read, and none is read ahead. */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>

#include "lifetime.h"

enum { THREADS = 4, PAGE = 4096, FILE_PAGES = 512 };

static int file;

static int create_file(const char *path) {
    static char page[PAGE];
    memset(page, 1, sizeof(page));
    file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    if (file < 0)
        return -1;
    for (int number = 0; number < FILE_PAGES; number++)
        if (write(file, page, sizeof(page)) != sizeof(page))
            return -1;
    return fsync(file) != 0 ? -1 : posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
}

static __attribute__((noinline)) int load_page(unsigned number) {
    char page[PAGE];
    off_t offset = (off_t)(number % FILE_PAGES) * PAGE;
    if (posix_fadvise(file, offset, PAGE, POSIX_FADV_DONTNEED) != 0)
        return -1;
    return pread(file, page, sizeof(page), offset) == sizeof(page) ? 0 : -1;
}

static void *read_pages(void *first) {
    for (unsigned number = *(unsigned *)first; load_page(number) == 0; number += THREADS)
        ;
    abort();
}

int main(int argc, char **argv) {
    static unsigned first[THREADS];
    pthread_t thread;
    if (argc < 3 || create_file(argv[2]) != 0)
        return 1;
    for (unsigned number = 0; number < THREADS; number++) {
        first[number] = number;
        if (pthread_create(&thread, NULL, read_pages, &first[number]) != 0)
            return 1;
    }
    ready(argc, argv);
    while (goes_on())
        usleep(100000);
    return 0;
}
