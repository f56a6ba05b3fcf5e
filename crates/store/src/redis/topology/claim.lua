-- Writes down which line of data is in use, unless as late an epoch is written there.
--
-- KEYS[1]: the roster: an epoch, a blank, the name of a line. ARGV[1]: the epoch. ARGV[2]: the name.
-- Returns whether it did.

local written = redis.call('GET', KEYS[1])
local epoch = written and tonumber(string.match(written, '^(%d+) %w+$'))
-- What no proxy wrote is left alone.
if written and (not epoch or epoch >= tonumber(ARGV[1])) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2])
return 1
