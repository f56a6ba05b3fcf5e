-- Adds counters that were reset to the list that all proxies read.
--
-- KEYS[1]: a sorted set of counters by when they were reset, in milliseconds.
-- ARGV: how long an entry is kept, in milliseconds; how many entries are kept; then the entries.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 3, #ARGV do
  call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[i])
end
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[1]))
call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[2])
call('PEXPIRE', KEYS[1], ARGV[1])
return 1
