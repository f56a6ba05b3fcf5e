-- Deletes counters, and lets nobody copy an earlier count into them for a while.
--
-- KEYS: a counter and the name of its marker, one pair after the other. While a marker exists,
-- seed.lua and add.lua refuse, unless their caller names this reset: what they would write may be
-- from before.
-- ARGV: how long markers last, in milliseconds; the name of this reset, which markers have.
for i = 1, #KEYS, 2 do
  redis.call('DEL', KEYS[i])
  redis.call('SET', KEYS[i + 1], ARGV[2], 'PX', ARGV[1])
end
return 1
