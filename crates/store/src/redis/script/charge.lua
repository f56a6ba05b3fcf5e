-- Takes all charges or none. A PEEK takes nothing and only returns how the counters stand.
--
-- KEYS: a counter for each charge, all of one owner.
-- Returns the instant, and for each charge whether it fits and what its counter holds now.
local charges, denied = {}, false
for i = 1, #KEYS do
  local c = charge_on(i)
  local algorithm = algorithms[c.kind]
  algorithm.load(c)
  algorithm.open(c)
  denied = denied or (not c.fits and c.enforced == 1)
  charges[i] = c
end

local reply = pack('<d', now)
for i, c in ipairs(charges) do
  local algorithm = algorithms[c.kind]
  local is_changed
  if opcode == PEEK then
    is_changed = false
  elseif not c.fits then
    is_changed = algorithm.on_denied(c)
  elseif not denied and c.cost > 0 then
    algorithm.take(c)
    is_changed = true
  end
  if is_changed then
    algorithm.save(c)
  end
  reply = reply .. (c.fits and '\1' or '\0') .. algorithm.reply(c)
end
return reply
