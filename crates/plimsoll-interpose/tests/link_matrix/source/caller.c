#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static int word = 7;

/* Makes one refused wait and two wakes without waiters; returns 0 if the results are the kernel's. */
int wait_and_wake(void) {
    errno = 0;
    if (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 8, NULL) != -1 || errno != EAGAIN)
        return 1;
    errno = 0;
    for (int i = 0; i < 2; i++)
        if (syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1) != 0 || errno != 0)
            return 2;
    return 0;
}
