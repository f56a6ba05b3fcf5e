-- Deletes counters, and lets nobody copy an earlier count into them for a while.
--
-- KEYS: a counter and the name of its marker, one pair after the other. While a marker exists,
-- seed.lua and add.lua refuse: what they would write may be from before the reset.
-- ARGV[1]: how long markers last, in milliseconds.
for i = 1, #KEYS, 2 do
  redis.call('DEL', KEYS[i])
  redis.call('SET', KEYS[i + 1], '', 'PX', ARGV[1])
end
return 1
