-- Health of a CosyVoiceDeployment for Argo CD, after the rules of kstatus: observedGeneration, Stalled, Reconciling, Ready.
-- Serving from a lower tier is healthy, and the message says so: a shortage of GPUs must not turn an application red.
local health = { status = "Progressing", message = "Waiting for the operator to see the resource" }
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "Being deleted"
  return health
end
if obj.spec ~= nil and obj.spec.paused == true then
  return { status = "Suspended", message = "spec.paused is true" }
end
if obj.status == nil or obj.status.observedGeneration == nil then
  return health
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  health.message = "Waiting for the operator to see the new spec"
  return health
end
local conditions = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  conditions[condition.type] = condition
end
local function is(type, status)
  return conditions[type] ~= nil and conditions[type].status == status
end
local function said(type)
  return (conditions[type].reason or type) .. ": " .. (conditions[type].message or "")
end
if is("Stalled", "True") then
  return { status = "Degraded", message = said("Stalled") }
end
if is("Reconciling", "True") then
  return { status = "Progressing", message = said("Reconciling") }
end
if is("Ready", "True") then
  if is("FallbackActive", "True") then
    return { status = "Healthy", message = "Serving from a lower tier. " .. said("FallbackActive") }
  end
  return { status = "Healthy", message = said("Ready") }
end
if is("Ready", "False") then
  return { status = "Degraded", message = said("Ready") }
end
health.message = "Waiting for condition Ready"
return health
