/* Threads with known states, for the tests of `plimsoll attach`. The arguments name the threads, each with an optional
 * number: `read*1000`; with `protected`, root becomes another user, whom the kernel lets no other process read. After a
 * line of standard input, prints what was counted. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define SIGNALS 20000
#define OTHER 65534

static volatile long sink, interrupted, sent, handled, turns;
static int named, epoll, events, busy, pipes[2], word = 7;
static volatile pid_t receiver;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t inheriting, robust;
static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;

static NOINLINE void wait_in_futex(void) {
    for (;;)
        if (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 7, NULL))
            interrupted += errno == EINTR;
}

static NOINLINE void wait_in_nanosleep(void) {
    struct timespec time = {100000, 0};
    for (;;)
        interrupted += nanosleep(&time, NULL) != 0;
}

static NOINLINE void wait_in_epoll(void) {
    struct epoll_event event;
    for (;;)
        interrupted += epoll_wait(epoll, &event, 1, -1) < 0;
}

static NOINLINE void wait_in_read(void) {
    char byte;
    for (;;)
        interrupted += read(pipes[0], &byte, 1) < 0;
}

static NOINLINE void wait_for_condition(void) {
    pthread_mutex_lock(&other);
    for (;;) {
        pthread_cond_wait(&condition, &other);
        interrupted++;
    }
}

static NOINLINE void wait_for_mutex(void) {
    pthread_mutex_lock(&mutex);
    abort();
}

static NOINLINE void wait_for_inheriting(void) {
    pthread_mutex_lock(&inheriting);
    abort();
}

static NOINLINE void wait_for_robust(void) {
    pthread_mutex_lock(&robust);
    abort();
}

static NOINLINE void read_the_clock(void) {
    struct timespec time;
    for (;;)
        sink += clock_gettime(CLOCK_MONOTONIC, &time);
}

static NOINLINE void spin_here(void) {
    for (;;)
        sink++;
}

static NOINLINE void lock_first(void) {
    pthread_mutex_lock(&first);
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&second);
    abort();
}

static NOINLINE void lock_second(void) {
    pthread_mutex_lock(&second);
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&first);
    abort();
}

static void handle(int signal) {
    (void)signal;
    handled++;
}

static NOINLINE void receive_signals(void) {
    receiver = syscall(SYS_gettid);
    for (;;)
        sink++;
}

static NOINLINE void send_signals(void) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_code = SI_QUEUE;
    while (!receiver)
        sched_yield();
    while (sent < SIGNALS) {
        /* Fails while too many are pending. */
        if (syscall(SYS_rt_tgsigqueueinfo, getpid(), receiver, SIGRTMIN, &info) == 0)
            sent++;
        else
            sched_yield();
    }
    wait_in_nanosleep();
}

/* Blocks and wakes all the time. */
static NOINLINE void serve_events(void) {
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(busy, EPOLL_CTL_ADD, events, &event);
    for (;;) {
        int found = epoll_wait(busy, &event, 1, -1);
        unsigned long value;
        if (found < 0)
            interrupted++;
        else if (read(events, &value, sizeof value) == sizeof value)
            turns++;
    }
}

static NOINLINE void make_events(void) {
    unsigned long one = 1;
    for (;;) {
        long last = turns;
        if (write(events, &one, sizeof one) < 0)
            abort();
        while (last == turns)
            sched_yield();
    }
}

static void *end_at_once(void *argument) {
    return argument;
}

static NOINLINE void start_threads(void) {
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, end_at_once, NULL) == 0)
            pthread_join(thread, NULL);
        turns++;
    }
}

/* Two threads without a stack: one pointer is no address, the other one leads to other memory. */
static NOINLINE void lose_the_stack(void) {
#ifdef __x86_64__
    __asm__ volatile("mov $-4096, %rsp\n1: jmp 1b");
#endif
}

static NOINLINE void leave_the_stack(void) {
#ifdef __x86_64__
    __asm__ volatile("lea sink(%rip), %rsp\nmov $-16, %rbp\n1: jmp 1b");
#endif
}

struct work {
    const char *name;
    void (*run)(void);
};

static void *start(void *argument) {
    struct work *work = argument;
    prctl(PR_SET_NAME, work->name);
    __atomic_add_fetch(&named, 1, __ATOMIC_SEQ_CST);
    work->run();
    sink++;
    return NULL;
}

static struct work works[] = {
    {"futex", wait_in_futex},       {"nanosleep", wait_in_nanosleep}, {"epoll", wait_in_epoll},
    {"read", wait_in_read},         {"condition", wait_for_condition}, {"mutex", wait_for_mutex},
    {"spinner", spin_here},         {"first", lock_first},             {"second", lock_second},
    {"receiver", receive_signals},  {"sender", send_signals},          {"server", serve_events},
    {"inheriting", wait_for_inheriting}, {"robust", wait_for_robust}, {"clock", read_the_clock},
    {"lost", lose_the_stack}, {"left", leave_the_stack},
    {"client", make_events},        {"starter", start_threads},
};

int main(int count, char **arguments) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    sigaction(SIGRTMIN, &action, NULL);
    epoll = epoll_create1(0);
    busy = epoll_create1(0);
    events = eventfd(0, 0);
    if (pipe(pipes))
        return 1;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_mutex_lock(&mutex);
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inheriting, &kind);
    pthread_mutex_lock(&inheriting);
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &kind);
    pthread_mutex_lock(&robust);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    int all = 0;
    for (int at = 1; at < count; at++) {
        if (!strcmp(arguments[at], "protected")) {
            if (setgroups(0, NULL) || setresgid(OTHER, OTHER, OTHER) || setresuid(OTHER, OTHER, OTHER))
                return 4;
            if (prctl(PR_SET_DUMPABLE, 0))
                return 4;
            continue;
        }
        char *star = strchr(arguments[at], '*');
        int number = star ? atoi(star + 1) : 1;
        size_t length = star ? (size_t)(star - arguments[at]) : strlen(arguments[at]);
        struct work *work = NULL;
        for (size_t i = 0; i < sizeof works / sizeof *works; i++)
            if (strlen(works[i].name) == length && !strncmp(works[i].name, arguments[at], length))
                work = &works[i];
        if (!work)
            return 2;
        all += number;
        for (int i = 0; i < number; i++) {
            pthread_t thread;
            if (pthread_create(&thread, &attributes, start, work))
                return 3;
        }
    }
    while (__atomic_load_n(&named, __ATOMIC_SEQ_CST) < all)
        sched_yield();
    puts("ready");
    fflush(stdout);
    int byte;
    while ((byte = getchar()) != EOF) {
        printf("%ld %ld %ld %ld\n", interrupted, sent, handled, turns);
        fflush(stdout);
    }
    return 0;
}
