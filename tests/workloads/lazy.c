/* The library that lazy_binding.c loads: call_all calls 4,096 functions through the PLT. */
static volatile unsigned long sink;

#define FUNCTION(name) \
    void name(void) { sink++; }
#define CALL(name) name();

#define SIXTEEN(each, name) \
    each(name##0) each(name##1) each(name##2) each(name##3) each(name##4) each(name##5) each(name##6) each(name##7) \
    each(name##8) each(name##9) each(name##a) each(name##b) each(name##c) each(name##d) each(name##e) each(name##f)
#define FUNCTIONS_16(name) SIXTEEN(FUNCTION, name)
#define FUNCTIONS_256(name) SIXTEEN_OF_16(FUNCTIONS_16, name)
#define CALLS_16(name) SIXTEEN(CALL, name)
#define CALLS_256(name) SIXTEEN_OF_16(CALLS_16, name)
/* A macro does not expand itself: the same as SIXTEEN, for the levels above. */
#define SIXTEEN_OF_16(each, name) \
    each(name##0) each(name##1) each(name##2) each(name##3) each(name##4) each(name##5) each(name##6) each(name##7) \
    each(name##8) each(name##9) each(name##a) each(name##b) each(name##c) each(name##d) each(name##e) each(name##f)
#define SIXTEEN_OF_256(each, name) \
    each(name##0) each(name##1) each(name##2) each(name##3) each(name##4) each(name##5) each(name##6) each(name##7) \
    each(name##8) each(name##9) each(name##a) each(name##b) each(name##c) each(name##d) each(name##e) each(name##f)

SIXTEEN_OF_256(FUNCTIONS_256, function_)

void call_all(void) { SIXTEEN_OF_256(CALLS_256, function_) }
