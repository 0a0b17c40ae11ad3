#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <thread>

// Prevents a tail call, which would leave no frame.
#define NOT_THE_LAST __asm__ volatile("")

// The operations on a lock, each in a separate function that the tests find by name.
#define ONE(name, type, action)                                                                    \
    extern "C" __attribute__((noinline)) int name(type *lock) {                                    \
        action;                                                                                    \
        NOT_THE_LAST;                                                                              \
        return 0;                                                                                  \
    }

#define MAKES(name, type)                                                                          \
    extern "C" type *name() { return new type(); }

namespace {

constexpr auto LONG = std::chrono::minutes(10);

// Takes a lock and releases it.
template <typename Guard, typename Lock, typename... More> int holds(Lock &lock, More... more) {
    Guard guard(lock, more...);
    return guard.owns_lock() ? 0 : 1;
}

} // namespace

MAKES(cpp_makes_mutex, std::mutex)
ONE(cpp_locks, std::mutex, lock->lock())
ONE(cpp_waits, std::mutex, std::lock_guard guard(*lock))
ONE(cpp_unlocks, std::mutex, lock->unlock())

MAKES(cpp_makes_recursive, std::recursive_mutex)
ONE(cpp_locks_recursive, std::recursive_mutex, lock->lock())
ONE(cpp_waits_recursive, std::recursive_mutex, std::lock_guard guard(*lock))
ONE(cpp_unlocks_recursive, std::recursive_mutex, lock->unlock())

MAKES(cpp_makes_timed, std::timed_mutex)
ONE(cpp_locks_timed, std::timed_mutex, lock->lock())
ONE(cpp_waits_timed, std::timed_mutex,
    if (holds<std::unique_lock<std::timed_mutex>>(*lock, LONG)) return 1)
ONE(cpp_unlocks_timed, std::timed_mutex, lock->unlock())

MAKES(cpp_makes_shared, std::shared_mutex)
ONE(cpp_writes, std::shared_mutex, lock->lock())
ONE(cpp_reads, std::shared_mutex, lock->lock_shared())
ONE(cpp_waits_to_read, std::shared_mutex, std::shared_lock guard(*lock))
ONE(cpp_waits_to_write_after, std::shared_mutex, std::unique_lock guard(*lock))
ONE(cpp_waits_to_write, std::shared_mutex, std::unique_lock guard(*lock))
ONE(cpp_stops_writing, std::shared_mutex, lock->unlock())
ONE(cpp_stops_writing_for_writers, std::shared_mutex, lock->unlock())
ONE(cpp_stops_reading, std::shared_mutex, lock->unlock_shared())

// A condition with its flag.
struct News {
    std::mutex mutex;
    std::condition_variable condition;
    bool is_there = false;
};

MAKES(cpp_makes_news, News)

ONE(cpp_waits_for_news, News, {
    std::unique_lock guard(lock->mutex);
    lock->condition.wait(guard, [lock] { return lock->is_there; });
})

ONE(cpp_waits_for_news_timed, News, {
    std::unique_lock guard(lock->mutex);
    if (!lock->condition.wait_for(guard, LONG, [lock] { return lock->is_there; }))
        return 1;
})

#define BRINGS_NEWS(name)                                                                          \
    ONE(name, News, {                                                                              \
        std::lock_guard guard(lock->mutex);                                                        \
        lock->is_there = true;                                                                     \
        lock->condition.notify_all();                                                              \
    })

BRINGS_NEWS(cpp_brings_news)
BRINGS_NEWS(cpp_brings_news_timed)

// Objects for which threads wait without a lock.
using Number = std::atomic<int>;

MAKES(cpp_makes_number, Number)
ONE(cpp_waits_for_a_number, Number, lock->wait(0))
ONE(cpp_sets_a_number, Number, {
    lock->store(1);
    lock->notify_all();
})

struct Promised {
    std::promise<void> promise;
    std::shared_future<void> future{promise.get_future()};
};

MAKES(cpp_makes_promise, Promised)
ONE(cpp_waits_for_a_promise, Promised, std::shared_future(lock->future).wait())
ONE(cpp_keeps_a_promise, Promised, lock->promise.set_value())

// An initialization that lasts until the test lets it end.
struct Once {
    std::once_flag flag;
    std::atomic<bool> has_begun = false, may_end = false;
};

MAKES(cpp_makes_once, Once)
ONE(cpp_does_it_once, Once, std::call_once(lock->flag, [lock] {
        lock->has_begun = true;
        while (!lock->may_end)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }))
ONE(cpp_has_begun, Once, return lock->has_begun)
ONE(cpp_waits_until_it_is_done, Once, std::call_once(lock->flag, [] {}))
ONE(cpp_lets_it_end, Once, lock->may_end = true)
