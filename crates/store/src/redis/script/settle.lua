-- Corrects an earlier charge: TAKE takes the cost whether or not it fits, GIVE_BACK gives it back,
-- RENEW extends its lease to the full time.
--
-- KEYS[1]: the counter. ARGV[1] ends with the two numbers of the charge's receipt.
-- Returns whether anything changed.
local c = charge_on(1)
local algorithm = algorithms[c.kind]
local at, number = unpack('<dd', ARGV[1], 44)
local is_changed = true
algorithm.load(c)
if opcode == TAKE then
  algorithm.open(c)
  algorithm.take(c)
elseif opcode == GIVE_BACK then
  is_changed = algorithm.give_back(c, at, number)
else
  -- Only leases can be renewed.
  is_changed = algorithm.renew ~= nil and algorithm.renew(c, at, number)
end
if is_changed then
  algorithm.save(c)
end
return is_changed and 1 or 0
