for i in 1 2 3 4 5 6 7 8 9; do redis-cli -p 7399 rpush numbers $((i * 7919 % 101)); done
redis-cli -p 7399 sort numbers
redis-cli -p 7399 eval 'return redis.sha1hex(string.rep("a", 100000))' 0
redis-cli -p 7399 lrange numbers 0 -1
redis-cli -p 7399 nothing
true
