/* A static probe (USDT), as <sys/sdt.h> of SystemTap writes it: an instruction that does nothing, and a note with its address. */
#ifndef STATIC_PROBE_H
#define STATIC_PROBE_H

/* `semaphore`: the name of a 16-bit counter in the section `.probes`, or "0". `argument`: a number of 64 bits, where the compiler
 * puts it by `constraint`: "r" in a register, "m" in memory, "n" as a constant. */
#define STATIC_PROBE(provider, name, semaphore, constraint, argument)                                \
    __asm__ volatile("990: nop\n"                                                                    \
                     ".pushsection .note.stapsdt, \"\", \"note\"\n"                                  \
                     ".balign 4\n"                                                                   \
                     ".4byte 992f - 991f, 994f - 993f, 3\n"                                          \
                     "991: .asciz \"stapsdt\"\n"                                                     \
                     "992: .balign 4\n"                                                              \
                     "993: .8byte 990b, _.stapsdt.base, " semaphore "\n"                             \
                     ".asciz \"" provider "\", \"" name "\", \"-8@%0\"\n"                            \
                     "994: .balign 4\n"                                                              \
                     ".popsection\n"                                                                 \
                     ".ifndef _.stapsdt.base\n"                                                      \
                     ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"     \
                     ".weak _.stapsdt.base\n"                                                        \
                     ".hidden _.stapsdt.base\n"                                                      \
                     "_.stapsdt.base: .space 1\n"                                                    \
                     ".size _.stapsdt.base, 1\n"                                                     \
                     ".popsection\n"                                                                 \
                     ".endif\n"                                                                      \
                     :                                                                               \
                     : constraint(argument))

#endif
