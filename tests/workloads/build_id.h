/* Copies an ELF file and gives the copy a build id of its own (elf(5), NT_GNU_BUILD_ID). */
#pragma once

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first 8 bytes of the build id in the notes of a segment; NULL if there is none. */
static inline unsigned char *build_id(unsigned char *notes, size_t bytes) {
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= bytes;) {
        Elf64_Nhdr *note = (Elf64_Nhdr *)(notes + at);
        size_t name = at + sizeof *note, content = name + (note->n_namesz + 3) / 4 * 4;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(notes + name, "GNU", 4) == 0)
            return notes + content;
        at = content + (note->n_descsz + 3) / 4 * 4;
    }
    return NULL;
}

/* Returns 0 if the copy is written. */
static inline int copy_with_build_id(const char *from, const char *to, unsigned long number) {
    static unsigned char file[1 << 20];
    int source = open(from, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = read(source, file, sizeof file);
    close(source);
    if (bytes <= (ssize_t)sizeof(Elf64_Ehdr) || bytes == sizeof file)
        return 1;
    Elf64_Ehdr *header = (Elf64_Ehdr *)file;
    Elf64_Phdr *segments = (Elf64_Phdr *)(file + header->e_phoff);
    unsigned char *id = NULL;
    for (int segment = 0; segment < header->e_phnum && id == NULL; segment++)
        if (segments[segment].p_type == PT_NOTE)
            id = build_id(file + segments[segment].p_offset, segments[segment].p_filesz);
    if (id == NULL)
        return 1;
    memcpy(id, &number, sizeof number);
    int copy = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    ssize_t written = write(copy, file, bytes);
    return close(copy) != 0 || written != bytes;
}
