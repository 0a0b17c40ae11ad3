#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

/* The same as host.rs, for a host in C. */
int main(int count, char **arguments) {
    char buffer[256];
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    if (!library)
        return 1;
    size_t (*report)(char *, size_t) = (size_t (*)(char *, size_t))dlsym(library, "library_report");
    if (!report)
        return 2;
    size_t length = report(buffer, sizeof buffer);
    int exported = dlsym(library, "syscall") != dlsym(RTLD_DEFAULT, "syscall");
    printf("%.*s exported=%s\n", (int)length, buffer, exported ? "true" : "false");
    return 0;
}
