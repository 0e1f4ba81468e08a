{{- /*
What the operator may do, in three parts. The fourth, in the namespace of a silo, is in the chart fedsilo-silo. All four
together are what the operator may do in all namespaces where none are named (clusterrole.yaml).
*/ -}}

{{- /* It follows these in all namespaces. It asks for its own by label, which a role cannot say. */ -}}
{{- define "fedsilo.rules.everywhere" -}}
- apiGroups: [fedsilo.io]
  resources: [federatedjobs, siloagents, silos]
  verbs: [get, list, watch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts, persistentvolumeclaims, pods, nodes]
  verbs: [get, list, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch]
{{- end }}

{{- /* In a namespace with jobs. An aggregator's role may hold nothing that the operator does not hold itself. */ -}}
{{- define "fedsilo.rules.jobs" -}}
- apiGroups: [fedsilo.io]
  resources: [federatedjobs]
  verbs: [patch, delete]
- apiGroups: [fedsilo.io]
  resources: [federatedjobs/status]
  verbs: [get, patch]
- apiGroups: [fedsilo.io]
  resources: [federatedjobs/finalizers]
  verbs: [update]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create, patch]
{{- end }}

{{- /* In its own namespace: the master key, made at the first start, and who leads. */ -}}
{{- define "fedsilo.rules.own" -}}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [fedsilo-operator-key]
  verbs: [get]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [fedsilo-operator]
  verbs: [get, patch]
{{- end }}
